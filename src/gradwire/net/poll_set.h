#pragma once

#include <cstddef>
#include <vector>

#include <poll.h>

#include "gradwire/net/socket.h"

namespace gradwire::net {

/// The sockets that one event loop waits for, rebuilt before each wait: for the few connections of
/// a rendezvous, not for traffic.
class PollSet {
 public:
  void clear() {
    entries_.clear();
    simulated_.clear();
    network_ = nullptr;
  }

  /// Adds a socket and returns its index for returned_events().
  std::size_t add(const Socket& socket, short events) {
    entries_.push_back({socket.descriptor(), events, 0});
    simulated_.push_back(socket.simulated());
    if (socket.simulated() != nullptr) network_ = socket.simulated();
    return entries_.size() - 1;
  }

  /// Waits for an event on any of the sockets, or until the deadline.
  void wait(Deadline deadline) {
    if (network_ != nullptr) return network_->poll(entries_, simulated_, deadline.left());
    ::poll(entries_.data(), entries_.size(), milliseconds_of(deadline.left()));
  }

  /// Returns the events that poll(2) reported; 0 if none.
  short returned_events(std::size_t index) const { return entries_[index].revents; }

 private:
  std::vector<pollfd> entries_;
  std::vector<SimulatedSocket*> simulated_;  ///< By entry; null: the kernel's.
  SimulatedSocket* network_ = nullptr;       ///< Any simulated one.
};

}  // namespace gradwire::net
