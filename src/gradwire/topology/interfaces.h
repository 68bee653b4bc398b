#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire {

/// A network interface of this host.
struct Interface {
  std::string name;                    ///< "eth0"
  std::vector<std::string> addresses;  ///< Numeric, IPv4 first: "10.0.0.1", "fe80::1%eth0".
  bool up = false;
  bool loopback = false;
};

/// All interfaces, in the kernel's order. Error: system.
Result<std::vector<Interface>> list_interfaces();

/// Those of `all` that are up, have an address, and that `wanted` selects: a comma list, each entry
/// a name or, if no interface has exactly that name, a prefix ("ens803f" means ens803f0 and
/// ens803f1). In the order of the list, those of a prefix by their number, each once. Error:
/// invalid_argument, for an entry that selects none; the message lists the interfaces there are.
Result<std::vector<Interface>> choose_interfaces(std::string_view wanted,
                                                 const std::vector<Interface>& all);

/// The name of the interface that has this numeric address; "" if none has. Any address in
/// 127.0.0.0/8 belongs to the loopback interface.
std::string interface_with_address(std::string_view address, const std::vector<Interface>& all);

/// "eth0 (10.0.0.1, fe80::1%eth0), eth1 (down)": for messages.
std::string describe_interfaces(const std::vector<Interface>& all);

}  // namespace gradwire
