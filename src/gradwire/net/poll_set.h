#pragma once

#include <cstddef>
#include <vector>

#include <poll.h>

#include "gradwire/net/socket.h"

namespace gradwire {

/// The sockets that one loop waits for, gathered anew before each wait: for the few connections of
/// a rendezvous, not for traffic.
class PollSet {
 public:
  void clear() { entries_.clear(); }

  /// Adds a socket; the answer is its place for happened().
  std::size_t add(const Socket& socket, short events) {
    entries_.push_back({socket.descriptor(), events, 0});
    return entries_.size() - 1;
  }

  /// Waits until something happens to one of them, or the deadline passes.
  void wait(Deadline deadline) {
    ::poll(entries_.data(), entries_.size(), milliseconds_of(deadline.left()));
  }

  /// What poll(2) reported; 0 if nothing.
  short happened(std::size_t place) const { return entries_[place].revents; }

 private:
  std::vector<pollfd> entries_;
};

}  // namespace gradwire
