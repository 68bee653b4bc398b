#pragma once

#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/topology/cluster.h"

namespace gradwire {

/// The version of topology.json that this gradwire writes, and the only one it reads.
inline constexpr int kTopologyVersion = 1;

/// A cluster as the text of topology.json (docs/topology.md has all its keys), and back. Times are
/// in microseconds, sizes in bytes, rates in bytes per second.
///
/// Reading refuses what it does not know: another version, unknown keys (it names the nearest known
/// one), values out of range, hosts without a rail or named twice, paths between hosts or over
/// rails that are not there. Error: invalid_argument, which names the place in the file
/// ("paths[3].to").
std::string to_json(const Cluster& cluster);
Result<Cluster> parse_cluster(std::string_view text);

/// The same from and to a file. Errors: system, with the file's path; invalid_argument.
Result<Cluster> read_cluster(const std::string& path);
/// As base/atomic_file.h's write_file(), which throws.
void write_cluster(const Cluster& cluster, const std::string& path);

}  // namespace gradwire
