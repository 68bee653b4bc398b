#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::cli {

/// A host on which ranks can be started.
struct HostEntry {
  std::string name;          ///< Passed to the remote shell: "a", "user@a".
  std::string address;       ///< Other ranks connect to it; empty: `name` without the user.
  std::optional<int> slots;  ///< Maximum ranks on the host; nullopt: not specified.
};

/// Parses "a,b", "a:2,b:2" or "[fd00::1]:2". The slots of a host that is listed twice are added.
/// Throws Exception(invalid_argument).
std::vector<HostEntry> parse_hosts(std::string_view list);

/// Parses a hostfile in MPI's format: one host per line, "name", "name:2" or "name slots=2",
/// optionally with "address=10.0.0.1" (an extension). "#" begins a comment. Errors name `path` and
/// the line. Throws Exception(invalid_argument).
std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& path);

/// Returns the address at which other hosts connect to `host`.
std::string address_of(const HostEntry& host);

/// Returns this machine's host name (gethostname(2)).
std::string this_host_name();

/// Returns true if a rank on `host` is a plain child process: `host` is "localhost", an address of
/// this machine, or its own name with or without its domain, and names no other user.
bool is_this_host(const HostEntry& host);

/// Where one rank runs.
struct Placement {
  Rank rank = 0;
  std::size_t host = 0;      ///< Index into the hosts.
  int local_rank = 0;        ///< Position among the ranks of its host.
  int local_world_size = 1;  ///< Number of ranks on its host.
};

/// Assigns consecutive ranks to each host, in the order of the hosts. If any host specifies slots,
/// hosts are filled in order, and a host without slots takes one rank. Otherwise the ranks are
/// spread evenly; the first hosts take one more. `ranks`: number of ranks; nullopt: one per slot.
/// Hosts that end up without a rank are not used. Throws Exception(invalid_argument) if there are
/// more ranks than slots, or more than kMaxRanks.
std::vector<Placement> place_ranks(const std::vector<HostEntry>& hosts, std::optional<int> ranks);

}  // namespace gradwire::cli
