#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/cli/launch/hosts.h"

namespace gradwire {

/// Returns the default of --master-addr for a rank 0 that runs on `first`: 127.0.0.1 if all ranks
/// are on this host (`all_here`), else the address of `first`. Throws Exception(invalid_argument)
/// if other hosts could not reach it.
std::string default_master_address(const HostEntry& first, bool all_here);

/// Returns a port for rank 0 to listen on. If `address` belongs to this host, the port is free now.
/// Otherwise it is drawn from 20000..29999, below the range of ephemeral ports, so that it is
/// probably free. Throws Exception(invalid_argument) for the wildcard addresses 0.0.0.0 and ::.
std::uint16_t free_master_port(const std::string& address);

}  // namespace gradwire
