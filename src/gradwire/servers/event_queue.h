#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

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

  /// Waits for the next event.
  Event pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !events_.empty(); });
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
};

}  // namespace gradwire::servers
