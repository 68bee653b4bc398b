#pragma once

#include <optional>
#include <string>

#include "gradwire/topology/topology.h"

namespace gradwire::cli {

/// Hosts and links as described on a command line.
struct LinkOptions {
  std::optional<int> ranks;      ///< Default: 4, or those of the file.
  int per_host = 1;              ///< Ranks per host; the last host may have fewer.
  std::string latency = "50us";  ///< Latency of every interface.
  /// Rate of a host's port: "1Gb/s", per host "1Gb/s,500Mb/s", per rail "1Gb/s+400Mb/s".
  std::string bandwidth = "10Gb/s";
  std::string topology_file;  ///< Replaces all the above, unless empty.
};

/// Returns the topology of the options. Throws Exception(invalid_argument) that names the expected
/// format, or Exception(system) if the file cannot be read.
topology::Topology topology_of(const LinkOptions& options);

/// Returns text such as "4 hosts of 10 Gb/s and 50 us".
std::string describe(const topology::Topology& topology);

}  // namespace gradwire::cli
