#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/cli/launch/hosts.h"

namespace gradwire {

/// The address that ranks find rank 0 at, which runs on `first`, if nobody said it: 127.0.0.1 if
/// all ranks are on this host (`all_here`), else the host's address. Throws
/// Exception(invalid_argument) if other hosts could not reach that.
std::string default_master_address(const HostEntry& first, bool all_here);

/// A port for rank 0 to listen on: one that nobody uses now if the address is one of this host's;
/// else one below those that systems give to outgoing connections, so that it is probably free.
/// Throws Exception(invalid_argument) for 0.0.0.0 and ::, which are nobody's address.
std::uint16_t free_master_port(const std::string& address);

}  // namespace gradwire
