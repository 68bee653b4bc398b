#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire::topology {

/// A network interface of this host.
struct Interface {
  std::string name;                    ///< "eth0"
  std::vector<std::string> addresses;  ///< Numeric, IPv4 first: "10.0.0.1", "fe80::1%eth0".
  bool up = false;
  bool loopback = false;
};

/// Returns all interfaces, in the kernel's order. Fails with system.
Result<std::vector<Interface>> list_interfaces();

/// Returns the interfaces of `all` that are up, have an address and match `wanted`: a
/// comma-separated list of names or, where no interface has that name, prefixes ("ens803f" means
/// ens803f0 and ens803f1). They are in the order of the list, those of a prefix in the order of
/// their numbers, each once. Fails with invalid_argument if an entry matches none; the message
/// lists the host's interfaces.
Result<std::vector<Interface>> choose_interfaces(std::string_view wanted,
                                                 const std::vector<Interface>& all);

/// Returns the name of the interface with this numeric address; "" if there is none. All addresses
/// in 127.0.0.0/8 belong to the loopback interface.
std::string interface_with_address(std::string_view address, const std::vector<Interface>& all);

/// Describes interfaces in messages: "eth0 (10.0.0.1, fe80::1%eth0), eth1 (down)".
std::string describe_interfaces(const std::vector<Interface>& all);

}  // namespace gradwire::topology
