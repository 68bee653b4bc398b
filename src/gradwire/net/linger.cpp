#include "gradwire/net/linger.h"

#include <cerrno>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace gradwire {
namespace {

/// Returns true if everything except this end's FIN (which counts as one byte) is acknowledged.
bool all_delivered(int descriptor) {
  int unacknowledged = 0;
  return ::ioctl(descriptor, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged <= 1;
}

/// Returns true if closing the descriptor can no longer lose data sent to the peer.
bool may_close(int descriptor) {
  return !discard_input(descriptor) || all_delivered(descriptor);
}

}  // namespace

bool discard_input(int descriptor) {
  constexpr std::size_t kMaxDiscard = 1 << 30;
  for (;;) {
    const ssize_t count = ::recv(descriptor, nullptr, kMaxDiscard, MSG_TRUNC | MSG_DONTWAIT);
    if (count > 0) continue;
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

void linger(std::vector<pollfd> streams, Deadline deadline) {
  for (;;) {
    std::erase_if(streams, [](const pollfd& stream) { return may_close(stream.fd); });
    if (streams.empty() || deadline.passed()) return;
    ::poll(streams.data(), streams.size(), 1);
  }
}

}  // namespace gradwire
