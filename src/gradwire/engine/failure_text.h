#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/engine/operations/in_flight_operation.h"
#include "gradwire/net/transport.h"

/// Builds the error messages of failed operations: which rank, what failed, what to do.
namespace gradwire::engine {

/// Error of one operation that failed because of an executor's error; states what its buffer
/// contains.
Error failure_of(const Operation& operation, const Error& cause);

/// The same for a receive from any rank, or from this one, that no message matches.
Error failure_of(const OperationRequest& receive, const Error& cause);

/// Error of an operation posted after the communicator failed.
Error after_failure(const Error& cause);

/// The same for a message to or from a rank with which operations have failed.
Error after_failure(Rank peer, const Error& cause);

/// Two ranks announced different operations with the same sequence number.
std::string mismatch_text(const std::string& peer, Rank peer_rank, const Fingerprint& theirs,
                          Rank self, const InFlightOperation& ours);

/// The receive of a rank's message to itself has another size, type or layout than its send.
std::string self_mismatch_text(Rank self, const Fingerprint& sent, const OperationRequest& receive);

/// A peer left although an operation needs it. `failure`: why, as it says; may be empty.
std::string departure_text(const std::string& peer, const std::string& failure,
                           const Operation& operation);

/// All peers left although a receive from any rank is pending.
std::string no_sender_text(const OperationRequest& receive);

/// The stream to a peer ended. `what` states how; `operation` may be null.
std::string disconnect_text(const std::string& what, const Operation* operation);

/// An operation exceeded its timeout. Names the ranks that have not called it, or have not sent
/// their data.
std::string timeout_text(const InFlightOperation& flight, const net::Transport& transport);

/// The same for a receive from any rank, or from this one.
std::string receive_timeout_text(const OperationRequest& receive);

std::string silence_text(const std::string& peer, Duration timeout);

std::string reported_by(Rank origin, const std::string& text);

}  // namespace gradwire::engine
