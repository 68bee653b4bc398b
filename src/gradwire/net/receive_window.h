#pragma once

#include <optional>

#include "gradwire/base/types.h"

namespace gradwire::net {

/// Limits the bytes in flight from one peer of a TCP connection (incast control). Concurrent
/// senders that each fill their window overflow the queue of the receiver's switch port, and then
/// wait for retransmissions (incast: Wu et al., "ICTCP", CoNEXT 2010). Each sender therefore gets a
/// share of that queue. For one socket; not thread-safe.
class ReceiveWindow {
 public:
  /// Requested SO_RCVBUF: room for the largest window, whatever overhead the kernel counts per
  /// packet. The kernel doubles it, if net.core.rmem_max allows.
  static constexpr int kRoom = 384 * 1024;

  /// Sets the window to `share` (0..1) of the last switch's queue. With share 1, the peer is the
  /// only sender: it soon gets the whole queue and, after being alone for longer, no limit other
  /// than the kernel's. Bytes in flight without a limit would arrive as a burst, so the limit
  /// outlasts pauses, and operations with few senders between those with many. In the meantime the
  /// window must not be smaller: a host and a switch each hold 64 KB of a stream in one piece. With
  /// half of a switch's queue, the bytes waiting there leave too few to fill the link.
  void set(int socket, double share, Time now);

  /// Returns the window in bytes; a large value if there is no limit.
  int size() const { return size_; }

 private:
  static constexpr int kUnlimited = 1 << 30;

  int size_for(double share, Time now);

  int size_ = kUnlimited;
  std::optional<Time> last_shared_at_;  ///< When it last had a share below 1.
  Time next_set_{};
};

}  // namespace gradwire::net
