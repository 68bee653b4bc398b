#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "gradwire/net/poll_set.h"
#include "tests/support/host.h"
#include "tests/support/loopback.h"

namespace gradwire::test {

/// An eavesdropper between two hosts that may change bytes. The ends of a connection are first and
/// second; a thread forwards their bytes.
class Wire {
 public:
  /// Modifies bytes in transit; `from`: the sending end.
  using Change = std::function<void(int from, std::string& bytes)>;

  Wire() : inner_(connected_pair()), outer_(connected_pair()), carrier_([this] { carry(); }) {}
  ~Wire() {
    stopped_ = true;
    carrier_.join();
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// The connection's ends; each can be taken once.
  net::Socket take_first() { return std::move(inner_.first); }
  net::Socket take_second() { return std::move(outer_.second); }

  /// Applies from here on.
  void change(Change change) {
    const std::lock_guard lock(mutex_);
    change_ = std::move(change);
  }

  /// Returns true if the forwarded bytes of either end contain `pattern`.
  bool has_seen(std::string_view pattern) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        seen_, [&](const std::string& said) { return said.find(pattern) != std::string::npos; });
  }
  std::size_t seen_bytes() const {
    const std::lock_guard lock(mutex_);
    return seen_[0].size() + seen_[1].size();
  }

 private:
  void carry() {
    net::PollSet set;
    std::array<bool, 2> ended = {false, false};
    while (!stopped_) {
      set.clear();
      for (const bool first : {true, false}) {
        if (!ended[first ? 0 : 1]) set.add(side(first), POLLIN);
      }
      set.wait(net::Deadline::after(kClock, std::chrono::milliseconds(5)));
      for (const bool first : {true, false}) {
        if (!ended[first ? 0 : 1]) ended[first ? 0 : 1] = !pass_on(first);
      }
    }
  }

  const net::Socket& side(bool first) const { return first ? inner_.second : outer_.first; }

  /// Returns false once that end has closed.
  bool pass_on(bool first) {
    std::string bytes(100'000, '\0');
    const net::Transfer got =
        net::receive_some(side(first), std::as_writable_bytes(std::span(bytes)));
    if (got.ended) ::shutdown(side(!first).descriptor(), SHUT_WR);
    bytes.resize(got.bytes);
    {
      const std::lock_guard lock(mutex_);
      if (change_ && !bytes.empty()) change_(first ? 0 : 1, bytes);
      seen_[first ? 0 : 1] += bytes;
    }
    auto rest = std::as_bytes(std::span(std::as_const(bytes)));
    while (!rest.empty() && !stopped_) {
      const net::Transfer sent = net::send_some(side(!first), rest);
      if (sent.ended) return false;
      rest = rest.subspan(sent.bytes);
      if (sent.bytes == 0) {
        net::wait_for(side(!first), POLLOUT,
                      net::Deadline::after(kClock, std::chrono::milliseconds(5)));
      }
    }
    return !got.ended;
  }

  SocketPair inner_;
  SocketPair outer_;
  mutable std::mutex mutex_;
  Change change_;
  std::array<std::string, 2> seen_;
  std::atomic<bool> stopped_ = false;
  std::thread carrier_;
};

}  // namespace gradwire::test
