#include "gradwire/topology/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace gradwire::topology {

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  const std::filesystem::path network = std::filesystem::read_symlink("/proc/self/ns/net", error);
  return boot.empty() || error ? "" : boot + " " + network.string();
}

std::string kernel_of(const std::string& machine_identity) {
  return machine_identity.substr(0, machine_identity.find(' '));
}

int machine_cores() {
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::vector<std::string> distinct_names(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (auto host = hosts.begin(); host != hosts.end(); ++host) {
    const bool is_first = std::find(hosts.begin(), host, *host) == host;
    names.push_back(is_first ? *host : *host + "#" + std::to_string(host - hosts.begin()));
  }
  return names;
}

}  // namespace gradwire::topology
