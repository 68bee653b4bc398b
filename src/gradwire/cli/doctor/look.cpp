#include "gradwire/cli/doctor/look.h"

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

int most_files() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_max, INT_MAX));
}

/// Returns the last of the three values (min, default, max) of net.ipv4.tcp_rmem or tcp_wmem.
int most_buffered(const char* name) {
  std::array<int, 3> least_usual_most = {};
  std::ifstream file(fmt::format("/proc/sys/net/ipv4/{}", name));
  for (int& number : least_usual_most) file >> number;
  return least_usual_most.back();
}

/// Returns net.core.rmem_max; 0 in a container that hides it.
int most_asked_for() {
  int most = 0;
  std::ifstream("/proc/sys/net/core/rmem_max") >> most;
  return most;
}

NameFacts resolve_here(const std::string& name) {
  NameFacts facts{.name = name, .addresses = {}, .error = {}};
  const auto addresses = resolve(name, 0);
  if (!addresses) facts.error = addresses.error().message;
  for (const SocketAddress& one : addresses.value_or(std::vector<SocketAddress>{})) {
    const std::string host = one.host();
    if (std::ranges::find(facts.addresses, host) == facts.addresses.end()) {
      facts.addresses.push_back(host);
    }
  }
  return facts;
}

std::vector<RailPlace> any_rails() {
  const auto all = list_interfaces();
  for (const Interface& one : all.value_or(std::vector<Interface>{})) {
    if (one.loopback || !one.up || one.addresses.empty()) continue;
    auto address = SocketAddress::of(one.addresses.front(), 0);
    if (address) return {{*address, one.name}};
  }
  return {};
}

}  // namespace

HostFacts look_at_host(const std::vector<std::string>& names) {
  HostFacts facts{.host = this_host_name(),
                  .version = GRADWIRE_VERSION,
                  .build = build_of_this(),
                  .protocol = static_cast<int>(kProtocolVersion),
                  .system = system_of_this(),
                  .most_files = most_files(),
                  .most_received = most_buffered("tcp_rmem"),
                  .most_sent = most_buffered("tcp_wmem"),
                  .most_asked_for = most_asked_for()};
  const auto all = list_interfaces();
  facts.interfaces = all ? describe_interfaces(*all) : all.error().message;
  for (const std::string& name : names) facts.names.push_back(resolve_here(name));
  look_at_installed(facts);
  return facts;
}

std::vector<RailPlace> find_rails(const Job& job, std::vector<std::string>& problems) {
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

std::vector<std::string> faster_interfaces(const std::vector<RailPlace>& rails) {
  int fastest = 0;
  for (const RailPlace& rail : rails) {
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
