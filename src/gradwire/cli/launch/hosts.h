#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

/// A host on which ranks can be started.
struct HostEntry {
  std::string name;          ///< Passed to the remote shell: "a", "user@a".
  std::string address;       ///< Other ranks connect to it; empty: `name` without the user.
  std::optional<int> slots;  ///< Maximum ranks on the host; nullopt: not specified.
};

/// Parses "a,b" or "a:2,b:2". The slots of a host that is listed twice are added. Throws
/// Exception(invalid_argument).
std::vector<HostEntry> parse_hosts(std::string_view list);

/// Parses a hostfile in MPI's format: one host per line, "name", "name:2" or "name slots=2",
/// optionally with "address=10.0.0.1" (an extension). "#" begins a comment. Errors name `path` and
/// the line. Throws Exception(invalid_argument).
std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& path);

/// Returns the address at which other hosts connect to `host`.
std::string address_of(const HostEntry& host);

/// Returns this machine's host name (gethostname(2)).
std::string this_host_name();

/// Returns true if a rank on `host` is a plain child process: `host` is "localhost", a loopback
/// address, or this machine's own name with or without its domain.
bool is_this_host(const HostEntry& host);

}  // namespace gradwire
