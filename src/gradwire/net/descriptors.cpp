#include "gradwire/net/descriptors.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include <fmt/format.h>
#include <sys/resource.h>

#include "gradwire/net/socket.h"

namespace gradwire::net {
namespace {

/// Reserve for files that other parts of the program open in the meantime.
constexpr std::size_t kSpare = 32;

/// Far more than one communicator needs; low enough that child processes which close all possible
/// descriptors remain fast.
constexpr std::size_t kPlenty = 65536;

std::size_t open_descriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error) return 0;
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace

Status allow_descriptors(std::size_t more) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return system_failure("cannot read the limit of open files");
  const std::size_t needed = open_descriptors() + more + kSpare;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(needed, kPlenty));
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return {};
  return failure(
      ErrorKind::system,
      fmt::format("this process needs {} file descriptors and may have {}: raise the limit "
                  "(ulimit -n {}; LimitNOFILE= in a systemd unit; nofile in "
                  "/etc/security/limits.conf)",
                  needed, limit.rlim_max, needed));
}

std::size_t part_of_descriptors(std::size_t parts) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
  return static_cast<std::size_t>(std::max<rlim_t>(8, limit.rlim_cur / parts));
}

}  // namespace gradwire::net
