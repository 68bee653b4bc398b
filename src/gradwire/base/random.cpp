#include "gradwire/base/random.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <sys/random.h>

#include "gradwire/base/error.h"

namespace gradwire {

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> random(bytes);
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got = ::getrandom(random.data() + have, bytes - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw Exception(ErrorKind::system, fmt::format("cannot get random bytes from the system: {}",
                                                     std::strerror(errno)));
    }
    have += static_cast<std::size_t>(got);
  }
  return fmt::format("{:02x}", fmt::join(random, ""));
}

}  // namespace gradwire
