#include "gradwire/net/receive_window.h"

#include <algorithm>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "gradwire/net/socket.h"

namespace gradwire::net {
namespace {

/// Bytes that may queue in the last switch before this host: inexpensive switches share about 512
/// KB among their ports.
constexpr int kSwitchQueueBytes = 384 * 1024;
constexpr int kMinWindow = 32 * 1024;

constexpr int kRoom = ReceiveWindow::kRoom;
static_assert(kRoom >= kSwitchQueueBytes);

/// Time for which a stream counts as one of several after it was.
constexpr Duration kSharedFor = std::chrono::seconds(2);

/// A peer that has been the only sender for a shorter time is the last one to finish, and soon all
/// of them send again; it gets kLastShare. With a larger share, direct all-reduces of 4 MiB take
/// 5 % longer.
constexpr Duration kLast = std::chrono::milliseconds(20);
constexpr double kLastShare = 1.0 / 2;

/// Linux resets the clamp when it grows the buffer and (since 6.9) when packet sizes change. It is
/// set again at this interval, at negligible cost.
constexpr Duration kSetInterval = std::chrono::milliseconds(5);

int buffer_of(int socket) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  ::getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return bytes;
}

/// Returns the buffer size that results from requesting kRoom: net.core.rmem_max may allow less.
int max_receive_buffer() {
  static const int granted = [] {
    const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_RCVBUF, &kRoom, sizeof kRoom);
    return buffer_of(socket.descriptor());
  }();
  return granted > 0 ? granted : 2 * kRoom;
}

/// Makes the buffer large enough for the largest window. SO_BUF_LOCK 0 re-enables the kernel's
/// auto-tuning. A locked buffer would never grow, because the kernel waits for more bytes per round
/// trip than the window allows. The buffer must not shrink: data within the advertised window would
/// be dropped. If that happens at both ends, Linux (6.18) rejects each end's acknowledgements as
/// outside the window, and both stall forever.
void make_room(int socket) {
  if (buffer_of(socket) >= max_receive_buffer()) return;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kRoom, sizeof kRoom);
  constexpr int kTuned = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_BUF_LOCK, &kTuned, sizeof kTuned);
}

}  // namespace

void ReceiveWindow::set(int socket, double share, Time now) {
  const int size = size_for(share, now);
  if (size == size_ && (size == kUnlimited || now < next_set_)) return;
  if (size_ == kUnlimited) make_room(socket);
  size_ = size;
  next_set_ = now + kSetInterval;
  ::setsockopt(socket, IPPROTO_TCP, TCP_WINDOW_CLAMP, &size_, sizeof size_);
}

int ReceiveWindow::size_for(double share, Time now) {
  if (share < 1) last_shared_at_ = now;
  const Duration alone = last_shared_at_ ? now - *last_shared_at_ : Duration::max();
  if (alone >= kSharedFor) return kUnlimited;
  if (share == 1 && alone < kLast) share = kLastShare;
  return std::max(kMinWindow, static_cast<int>(share * kSwitchQueueBytes));
}

}  // namespace gradwire::net
