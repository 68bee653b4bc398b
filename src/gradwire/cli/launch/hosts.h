#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

/// A machine that ranks are started on.
struct HostEntry {
  std::string name;          ///< What the remote shell is given: "a", "user@a".
  std::string address;       ///< What other ranks connect to; empty: the name without the user.
  std::optional<int> slots;  ///< How many ranks it takes at most; nothing if it was not said.
};

/// "a,b" or "a:2,b:2". A host named twice has the slots of both. Throws
/// Exception(invalid_argument).
std::vector<HostEntry> parse_hosts(std::string_view list);

/// A hostfile as MPI has them: a host a line, "name", "name:2" or "name slots=2", and for us
/// "address=10.0.0.1"; the rest of a line after # is a comment. `path` is for errors, which name
/// the line. Throws Exception(invalid_argument).
std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& path);

/// The address of a host for others to connect to.
std::string address_of(const HostEntry& host);

/// The name this machine has for itself.
std::string this_host_name();

/// Whether a rank on `host` is a plain child process: "localhost", a loopback address, or this
/// machine's own name with or without its domain.
bool is_this_host(const HostEntry& host);

}  // namespace gradwire
