#include "gradwire/cli/doctor/host_info.h"

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "gradwire/base/units.h"
#include "gradwire/bootstrap/handshake_messages.h"
#include "gradwire/bootstrap/local_rails.h"
#include "gradwire/cli/doctor/installed.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/cli/sibling.h"
#include "gradwire/net/address.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire {
namespace {

/// Returns checksums of the running program and, if installed, of the program beside it that needs
/// libtorch.
std::string build_of_this() {
  const auto torch = find_torch_program();
  return checksum_of(own_executable()) + (torch ? "+" + checksum_of(*torch) : "");
}

std::string system_of_this() {
  utsname name = {};
  ::uname(&name);
  return fmt::format("{} {}, glibc {}", name.sysname, name.release, ::gnu_get_libc_version());
}

int max_files() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_max, INT_MAX));
}

/// Returns the last of the three values (min, default, max) of net.ipv4.tcp_rmem or tcp_wmem.
int max_buffer(const char* name) {
  std::array<int, 3> min_default_max = {};
  std::ifstream file(fmt::format("/proc/sys/net/ipv4/{}", name));
  for (int& number : min_default_max) file >> number;
  return min_default_max.back();
}

/// Returns net.core.rmem_max; 0 in a container that hides it.
int max_requested_buffer() {
  int most = 0;
  std::ifstream("/proc/sys/net/core/rmem_max") >> most;
  return most;
}

ResolvedName resolve_here(const std::string& name) {
  ResolvedName info{.name = name, .addresses = {}, .error = {}};
  const auto addresses = resolve(name, 0);
  if (!addresses) info.error = addresses.error().message;
  for (const SocketAddress& one : addresses.value_or(std::vector<SocketAddress>{})) {
    const std::string host = one.host();
    if (std::ranges::find(info.addresses, host) == info.addresses.end()) {
      info.addresses.push_back(host);
    }
  }
  return info;
}

std::vector<RailEndpoint> any_rails() {
  const auto all = list_interfaces();
  for (const Interface& one : all.value_or(std::vector<Interface>{})) {
    if (one.loopback || !one.up || one.addresses.empty()) continue;
    auto address = SocketAddress::of(one.addresses.front(), 0);
    if (address) return {{*address, one.name}};
  }
  return {};
}

}  // namespace

HostInfo read_host_info(const std::vector<std::string>& names) {
  HostInfo info{.host = this_host_name(),
                .version = GRADWIRE_VERSION,
                .build = build_of_this(),
                .protocol = static_cast<int>(kProtocolVersion),
                .system = system_of_this(),
                .max_files = max_files(),
                .max_receive_buffer = max_buffer("tcp_rmem"),
                .max_send_buffer = max_buffer("tcp_wmem"),
                .max_requested_buffer = max_requested_buffer()};
  const auto all = list_interfaces();
  info.interfaces = all ? describe_interfaces(*all) : all.error().message;
  for (const std::string& name : names) info.names.push_back(resolve_here(name));
  read_installed_versions(info);
  return info;
}

std::vector<RailEndpoint> find_rails(const Job& job, std::vector<std::string>& problems) {
  const auto masters = resolve(job.master_address, job.master_port);
  if (!masters) {
    // diagnose_names() reports it.
    if (job.interface.empty()) return any_rails();
    const auto chosen = choose_local_rails(job.interface, SocketAddress());
    if (chosen) return *chosen;
    problems.push_back(chosen.error().message);
    return any_rails();
  }
  auto chosen = choose_local_rails(job.interface, masters->front());
  if (chosen) return std::move(*chosen);
  problems.push_back(chosen.error().message);
  return any_rails();
}

int negotiated_megabits(const std::string& interface) {
  const std::filesystem::path card = "/sys/class/net/" + interface;
  std::error_code error;
  if (!std::filesystem::exists(card / "device", error)) return 0;
  int megabits = 0;
  std::ifstream(card / "speed") >> megabits;
  return std::max(megabits, 0);
}

std::vector<std::string> faster_interfaces(const std::vector<RailEndpoint>& rails) {
  int fastest = 0;
  for (const RailEndpoint& rail : rails) {
    fastest = std::max(fastest, negotiated_megabits(rail.interface));
  }
  std::vector<std::string> faster;
  if (fastest == 0) return faster;
  const auto all = list_interfaces();
  for (const Interface& one : all.value_or(std::vector<Interface>{})) {
    const int megabits = one.up && !one.addresses.empty() ? negotiated_megabits(one.name) : 0;
    if (megabits < 2 * fastest) continue;
    faster.push_back(fmt::format("{} ({}), {}", one.name, one.addresses.front(),
                                 format_rate(megabits * 1e6 / 8)));
  }
  return faster;
}

}  // namespace gradwire
