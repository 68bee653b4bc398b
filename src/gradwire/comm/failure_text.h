#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/comm/flight.h"
#include "gradwire/net/transport.h"

/// The sentences that users read when an operation fails: who, what, and what to do.
namespace gradwire {

/// The error of one operation, ended by the executor's error: says what became of its buffer.
Error failure_of(const Operation& operation, const Error& cause);

/// The error of an operation posted after everything failed.
Error after_failure(const Error& cause);

/// Two ranks called different operations where each expected the same of the other.
std::string disagreement(const std::string& peer, const Fingerprint& theirs, Rank self,
                         const Operation& ours);

/// A peer said goodbye although an operation needs it.
std::string left_during(const std::string& peer, const Operation& operation);

/// The stream to a peer ended (`what` says how); `operation` may be null.
std::string lost_during(const std::string& what, const Operation* operation);

/// An operation outlived its timeout: names who has not called it, or who has not sent.
std::string overdue(const Flight& flight, const Transport& transport);

std::string silent(const std::string& peer, Duration timeout);

std::string reported_by(Rank origin, const std::string& text);

}  // namespace gradwire
