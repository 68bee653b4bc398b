#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/net/address.h"

namespace gradwire {

/// The address on which this rank meets the others, port 0, and the interface that has it.
struct LocalPlace {
  SocketAddress address;
  std::string interface;
};

/// `wanted` (names or prefixes of interfaces, a comma list) decides, by its first interface; if
/// empty, the route towards `master` does, which is the loopback if the master is there. Of an
/// interface's addresses one of the master's family is preferred, and link-local ones are avoided,
/// since they mean nothing on another host. Errors: invalid_argument, system (no route).
Result<LocalPlace> choose_local_place(const std::string& wanted, const SocketAddress& master);

}  // namespace gradwire
