#include "gradwire/base/cpu.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include <sched.h>
#include <sys/resource.h>

namespace gradwire {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Version 2: "50000 100000", or "max 100000".
double quota_in(const std::filesystem::path& cpu_max) {
  std::ifstream file(cpu_max);
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kUnlimited;
}

/// Version 1: two files; the quota is -1 without one.
double quota_of_two(const std::filesystem::path& folder) {
  double quota = 0, period = 0;
  std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
  std::ifstream(folder / "cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : kUnlimited;
}

/// Returns the smallest quota of a group and those around it, up to the mounted root.
template <class Quota>
double smallest(const std::filesystem::path& mount, std::filesystem::path group, Quota quota) {
  double found = quota(mount);
  for (group = group.relative_path(); !group.empty(); group = group.parent_path()) {
    found = std::min(found, quota(mount / group));
  }
  return found;
}

}  // namespace

double cpu_quota(const std::filesystem::path& root) {
  const auto mounts = root / "sys/fs/cgroup";
  double quota = kUnlimited;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/job", or "0::/job".
    const auto first = line.find(':');
    const auto second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers == ",,") {
      quota = std::min(quota, smallest(mounts, group, [](const auto& folder) {
                         return quota_in(folder / "cpu.max");
                       }));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      quota = std::min(quota, smallest(mounts / "cpu", group, quota_of_two));
    }
  }
  return quota;
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int allowed = ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::max(1, static_cast<int>(std::min<double>(allowed, std::ceil(cpu_quota()))));
}

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

double cpu_seconds_used() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace gradwire
