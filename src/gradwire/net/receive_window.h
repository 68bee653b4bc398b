#pragma once

#include <optional>

#include "gradwire/base/types.h"

namespace gradwire {

/// How much the peer of a TCP connection may have under way. Senders that each fill a window
/// overflow the queue of the one port they all go to, and then wait for what was lost (incast: Wu
/// et al., "ICTCP", CoNEXT 2010), so that each is given a share of what that queue holds.
/// For one socket; not thread-safe.
class ReceiveWindow {
 public:
  /// What is asked for as SO_RCVBUF: room for the largest window, whatever the kernel counts for
  /// each packet in it. It doubles this, if net.core.rmem_max allows it.
  static constexpr int kRoom = 384 * 1024;

  /// Sets the window to `share` (0..1) of what the last switch holds. 1: the peer is alone, and
  /// soon has all of it, and what the kernel finds right once it has been alone for a while. What
  /// was in flight without a limit would come as a burst, so that the limit outlasts pauses, and
  /// operations of few senders between those of many. It must not be less meanwhile: a host and a
  /// switch hold 64 KB of a stream in one piece each, and beside what waits to be read there half
  /// of a switch's queue fills no link.
  void set(int socket, double share, Time now);

  /// Bytes; large if there is no limit.
  int size() const { return size_; }

 private:
  static constexpr int kUnlimited = 1 << 30;

  int size_for(double share, Time now);

  int size_ = kUnlimited;
  std::optional<Time> several_at_;  ///< When it last had less than all.
  Time set_again_{};
};

}  // namespace gradwire
