#include "gradwire/net/receive_window.h"

#include <algorithm>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "gradwire/net/socket.h"

namespace gradwire {
namespace {

/// What the last switch before us may have to hold, in bytes: cheap ones share some 512 KB among
/// their ports.
constexpr int kLastSwitchHolds = 384 * 1024;
constexpr int kLeastWindow = 32 * 1024;

constexpr int kRoom = ReceiveWindow::kRoom;
static_assert(kRoom >= kLastSwitchHolds);

/// For how long a stream counts as one of several after it was.
constexpr Duration kSeveral = std::chrono::seconds(2);

/// Who is alone for less is the last of them to be done, and soon they all begin anew: it has this
/// share. With more, direct all-reduces of 4 MiB take 5 % longer.
constexpr Duration kLast = std::chrono::milliseconds(20);
constexpr double kShareOfLast = 1.0 / 2;

/// Linux forgets the clamp when it makes the buffer larger, and (since 6.9) when packets change
/// their size: it is set again, as often as costs next to nothing.
constexpr Duration kSetAgain = std::chrono::milliseconds(5);

int buffer_of(int socket) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  ::getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return bytes;
}

/// The buffer that asking for kRoom gives: net.core.rmem_max may allow less.
int most_room() {
  static const int most = [] {
    const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_RCVBUF, &kRoom, sizeof kRoom);
    return buffer_of(socket.descriptor());
  }();
  return most > 0 ? most : 2 * kRoom;
}

/// Enough for the largest window from the beginning. Later the kernel goes on making it larger as
/// it sees fit, as ever: one that it was kept from tuning would stay as it is for good, for the
/// kernel then waits for more bytes in a round trip than the window allows. It must not become
/// smaller: what was allowed to come would be thrown away, and if that happens to both ends, Linux
/// (6.18) takes the acknowledgements of each for what lies outside the window, and neither ever
/// sends on.
void make_room(int socket) {
  if (buffer_of(socket) >= most_room()) return;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kRoom, sizeof kRoom);
  constexpr int kTuned = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_BUF_LOCK, &kTuned, sizeof kTuned);
}

}  // namespace

void ReceiveWindow::set(int socket, double share, Time now) {
  const int size = size_for(share, now);
  if (size == size_ && (size == kUnlimited || now < set_again_)) return;
  if (size_ == kUnlimited) make_room(socket);
  size_ = size;
  set_again_ = now + kSetAgain;
  ::setsockopt(socket, IPPROTO_TCP, TCP_WINDOW_CLAMP, &size_, sizeof size_);
}

int ReceiveWindow::size_for(double share, Time now) {
  if (share < 1) several_at_ = now;
  const Duration alone = several_at_ ? now - *several_at_ : Duration::max();
  if (alone >= kSeveral) return kUnlimited;
  if (share == 1 && alone < kLast) share = kShareOfLast;
  return std::max(kLeastWindow, static_cast<int>(share * kLastSwitchHolds));
}

}  // namespace gradwire
