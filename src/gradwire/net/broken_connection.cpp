#include "gradwire/net/broken_connection.h"

#include <cerrno>

#include <fmt/format.h>

#include "gradwire/net/deadline.h"
#include "gradwire/net/system_failure.h"

namespace gradwire {

std::string describe_broken_connection(int cause, const std::string& name, Duration dead_after) {
  switch (cause) {
    case 0:
      return fmt::format("{} closed the connection", name);
    case ECONNRESET:
    case EPIPE:
      return fmt::format("the connection to {} was reset: its process has probably died", name);
    case ETIMEDOUT:
      return fmt::format("the link to {} is dead: it took no data{}", name,
                         dead_after > Duration::zero()
                             ? fmt::format(" for {} ms", milliseconds_of(dead_after))
                             : "");
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
      return fmt::format("the link to {} is cut: {}", name, errno_text(cause));
    default:
      return fmt::format("the connection to {} broke: {}", name, errno_text(cause));
  }
}

}  // namespace gradwire
