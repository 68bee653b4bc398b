#pragma once

#include "gradwire/base/types.h"

namespace gradwire {

/// How much the peer of a TCP connection may have under way. Senders that each fill a window
/// overflow the queue of the one port they all go to, and then wait for what was lost (incast: Wu
/// et al., "ICTCP", CoNEXT 2010), so that each is given a share of what that queue holds.
/// For one socket; not thread-safe.
class ReceiveWindow {
 public:
  /// Sets the window to `share` of what the last switch holds; 1: the peer is alone, and has half
  /// of it, and what the kernel finds right once it has been alone for a while. What was in flight
  /// without a limit comes as a burst, so that the limit outlasts pauses, and operations of few
  /// senders between those of many.
  void set(int socket, double share, Time now);

  /// Bytes; large if there is no limit.
  int size() const;

 private:
  double share_ = 1;
  Time shared_until_{};
  Time set_again_{};
};

}  // namespace gradwire
