#pragma once

#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/topology/cluster.h"

namespace gradwire::topology {

/// Version of topology.json that is written, and the only one that is read.
inline constexpr int kTopologyVersion = 1;

/// Converts a cluster to the text of topology.json (docs/topology.md lists all keys), and back.
/// Times are in microseconds, sizes in bytes, rates in bytes per second.
///
/// Parsing refuses other versions, unknown keys (it suggests the nearest known one), values out of
/// range, hosts without a rail or with duplicate names, and paths between hosts or over rails that
/// do not exist. Fails with invalid_argument; the message names the place in the file
/// ("paths[3].to").
std::string to_json(const Cluster& cluster);
Result<Cluster> parse_cluster(std::string_view text);

/// Reads a file and parses it as parse_cluster() does. Fails with system, with the file's path, or
/// with invalid_argument.
Result<Cluster> read_cluster(const std::string& path);
/// Writes the text of to_json() to a file. Throws as write_file() (base/file.h).
void write_cluster(const Cluster& cluster, const std::string& path);

}  // namespace gradwire::topology
