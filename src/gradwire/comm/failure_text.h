#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/comm/flight.h"
#include "gradwire/net/transport.h"

/// The sentences that users read when an operation fails: who, what, and what to do.
namespace gradwire {

/// The error of one operation, ended by the executor's error: says what became of its buffer.
Error failure_of(const Operation& operation, const Error& cause);

/// The same of a receive from anyone for which nothing had been announced.
Error failure_of(const OperationRequest& receive, const Error& cause);

/// The error of an operation posted after everything failed.
Error after_failure(const Error& cause);

/// Two ranks called different operations where each expected the same of the other.
std::string disagreement(const std::string& peer, Rank peer_rank, const Fingerprint& theirs,
                         Rank self, const Flight& ours);

/// A peer said goodbye although an operation needs it.
std::string left_during(const std::string& peer, const Operation& operation);

/// Everybody said goodbye although a receive from anyone waits.
std::string left_alone(const OperationRequest& receive);

/// The stream to a peer ended (`what` says how); `operation` may be null.
std::string lost_during(const std::string& what, const Operation* operation);

/// An operation outlived its timeout: names who has not called it, or who has not sent.
std::string overdue(const Flight& flight, const Transport& transport);

/// The same for a receive from anyone.
std::string never_came(const OperationRequest& receive);

std::string silent(const std::string& peer, Duration timeout);

std::string reported_by(Rank origin, const std::string& text);

}  // namespace gradwire
