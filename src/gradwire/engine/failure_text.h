#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/engine/flight.h"
#include "gradwire/net/transport.h"

/// Builds the error messages of failed operations: which rank, what failed, what to do.
namespace gradwire {

/// Error of one operation that failed because of an executor's error; states what its buffer
/// contains.
Error failure_of(const Operation& operation, const Error& cause);

/// The same for a receive from any rank that no sender has announced.
Error failure_of(const OperationRequest& receive, const Error& cause);

/// Error of an operation posted after the communicator failed.
Error after_failure(const Error& cause);

/// Two ranks announced different operations with the same sequence number.
std::string disagreement(const std::string& peer, Rank peer_rank, const Fingerprint& theirs,
                         Rank self, const Flight& ours);

/// A peer left although an operation needs it.
std::string left_during(const std::string& peer, const Operation& operation);

/// All peers left although a receive from any rank is pending.
std::string left_alone(const OperationRequest& receive);

/// The stream to a peer ended. `what` states how; `operation` may be null.
std::string lost_during(const std::string& what, const Operation* operation);

/// An operation exceeded its timeout. Names the ranks that have not called it, or have not sent
/// their data.
std::string overdue(const Flight& flight, const Transport& transport);

/// The same for a receive from any rank.
std::string never_came(const OperationRequest& receive);

std::string silent(const std::string& peer, Duration timeout);

std::string reported_by(Rank origin, const std::string& text);

}  // namespace gradwire
