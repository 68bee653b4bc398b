#pragma once

#include <string>

#include "gradwire/comm/rank_place.h"
#include "gradwire/net/address.h"

namespace gradwire {

/// The interface that a socket from a rail of ours to `other` must be bound to for its packets to
/// leave there; empty if they do anyway, or if answers might then not come back.
std::string binding_of(const RailPlace& own, const SocketAddress& other);

/// Whether packets from the rail leave by another interface, which nothing that a process can do
/// mends.
bool is_detour(const RailPlace& own, const SocketAddress& other);

}  // namespace gradwire
