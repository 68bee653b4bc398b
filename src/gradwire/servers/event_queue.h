#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "gradwire/base/clock.h"

namespace gradwire::servers {

/// Events that other threads report to the one that serves.
template <class Event>
class EventQueue {
 public:
  void push(Event event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    arrived_.notify_one();
  }

  /// Waits for the next event. Returns nullopt if there is none until `until`, or Time::max().
  std::optional<Event> pop_until(Time until, const Clock& clock) {
    std::unique_lock lock(mutex_);
    while (events_.empty() && clock.now() < until) {
      if (until == Time::max()) {
        arrived_.wait(lock);
      } else {
        wait_until(arrived_, lock, until);
      }
    }
    if (events_.empty()) return std::nullopt;
    return take(lock);
  }
  /// Waits for the next event.
  Event pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !events_.empty(); });
    return take(lock);
  }

 private:
  Event take(const std::unique_lock<std::mutex>& /*held*/) {
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
};

}  // namespace gradwire::servers
