#pragma once

#include <string>

#include "gradwire/bootstrap/rank_endpoint.h"
#include "gradwire/net/address.h"

namespace gradwire {

/// Returns the interface to which a socket from `own` to `other` must be bound for its packets to
/// leave there. Empty if they leave there without binding, or if binding could keep answers from
/// arriving.
std::string binding_of(const RailEndpoint& own, const SocketAddress& other);

/// Returns true if packets from the rail leave by another interface and a process cannot prevent
/// it.
bool is_detour(const RailEndpoint& own, const SocketAddress& other);

}  // namespace gradwire
