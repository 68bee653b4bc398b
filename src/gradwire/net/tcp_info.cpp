// The kernel's header: glibc's lacks part of the structure, and the two are mutually exclusive.
#include "gradwire/net/tcp_info.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gradwire::net {

Duration min_round_trip(int descriptor) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return Duration::zero();
  const bool has_it = size >= offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt;
  const bool knows_it = info.tcpi_min_rtt != std::numeric_limits<std::uint32_t>::max();
  if (!has_it || !knows_it) return Duration::zero();
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

}  // namespace gradwire::net
