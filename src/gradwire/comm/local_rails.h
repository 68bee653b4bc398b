#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/comm/rank_place.h"
#include "gradwire/net/address.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// Where this rank meets the others: an address, port 0, of each of the interfaces that `wanted`
/// selects (names or prefixes, a comma list), in their order; if it is empty, of the one on the
/// route towards `master`, which is the loopback if the master is there. Of an interface's
/// addresses one of the master's family is preferred, and link-local ones are avoided, since they
/// mean nothing on another host. Errors: invalid_argument, system (no route).
Result<std::vector<RailPlace>> choose_local_rails(const std::string& wanted,
                                                  const SocketAddress& master);

/// Whether the kernel sends what goes from a rail of ours to `other` out of another interface, as
/// it does when two interfaces are in one subnet: it routes by destination alone. Binding the
/// connection to the rail's interface mends it (net/socket.h).
bool leaves_elsewhere(const RailPlace& own, const SocketAddress& other);

/// Whether what others send to a rail of ours certainly comes in by its interface, so that a
/// connection may be bound to that. By default, Linux answers ARP requests for the address of one
/// interface on any other in the same subnet.
bool answers_for_itself_alone(const RailPlace& own);

}  // namespace gradwire
