#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/net/address.h"
#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// Returns the endpoints on which this rank accepts connections: an address, with port 0, of each
/// interface that `wanted` selects (a comma-separated list of names or prefixes), in their order.
/// If `wanted` is empty: the interface on the route to `master`, which is loopback if the master is
/// on it. Among an interface's addresses, one of the master's family is preferred, and link-local
/// ones are avoided, because they are meaningless on other hosts. Fails with invalid_argument or
/// system (no route).
Result<std::vector<RailEndpoint>> choose_local_rails(const std::string& wanted,
                                                     const net::SocketAddress& master);

/// Returns the address by which other hosts reach this one, if its own name `master` is a loopback
/// address here, as with Debian's "127.0.1.1 NAME" in /etc/hosts: that of the default route, or of
/// the only interface. Otherwise "", also if `master` is itself an address, or there is none.
std::string address_in_place_of_loopback(const std::string& master);

/// The rails at these addresses of this host, in their order: numeric, without a port. Error:
/// invalid_argument (not an address, more than kMaxRails).
Result<std::vector<RailEndpoint>> rails_at(const std::vector<std::string>& addresses);

/// Returns true if the kernel sends packets from a local rail to `other` out of another interface.
/// It does so if two interfaces are in one subnet, because it routes by destination alone. Binding
/// the connection to the rail's interface avoids it (net/socket.h).
bool leaves_elsewhere(const RailEndpoint& own, const net::SocketAddress& other);

/// Returns true if packets to a local rail's address are certain to arrive on its interface, so
/// that a connection may be bound to it. By default, Linux answers ARP requests for the address of
/// one interface on any other interface in the same subnet.
bool answers_for_itself_alone(const RailEndpoint& own);

}  // namespace gradwire::bootstrap
