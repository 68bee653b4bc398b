#pragma once

#include <optional>
#include <string>

#include "gradwire/topology/topology.h"

namespace gradwire {

/// Machines as they are described on a command line.
struct LinkOptions {
  std::optional<int> ranks;          ///< 4, or those of the file.
  int per_host = 1;                  ///< Ranks on each host; the last may have fewer.
  std::string latency = "50us";      ///< Of every interface.
  std::string bandwidth = "10Gb/s";  ///< "1Gb/s", by host "1Gb/s,500Mb/s", by rail "1Gb/s+400Mb/s".
  std::string topology_file;         ///< Instead of all those; empty: none.
};

/// Throws Exception(invalid_argument), which says what is expected; system, if the file cannot be
/// read.
Topology topology_of(const LinkOptions& options);

/// "4 hosts of 10 Gb/s and 50 us".
std::string describe(const Topology& topology);

}  // namespace gradwire
