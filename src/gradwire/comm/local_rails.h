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

/// The interface to which a connection from a rail of ours to `other` must be bound so that its
/// packets leave there: empty if the route leads there anyway. Two interfaces in one subnet need
/// it, as the kernel routes by destination alone. Empty too, after a warning, if this host answers
/// ARP requests for the address of one interface on the other: then what is sent to the rail may
/// come in elsewhere, and a bound connection would never see it.
std::string interface_to_bind(const RailPlace& own, const SocketAddress& other);

}  // namespace gradwire
