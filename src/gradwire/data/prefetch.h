#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace gradwire {

/// Makes the next items on a thread of its own while the current one is used. At most `capacity`
/// wait ready at a time. `make` returns nothing at the end; what it throws comes out of next(),
/// after the items made before. Destroying it waits for the item under way, and no longer. next()
/// is for one thread at a time.
template <class T>
class Prefetcher {
 public:
  Prefetcher(std::function<std::optional<T>()> make, std::size_t capacity)
      : make_(std::move(make)),
        capacity_(capacity > 0 ? capacity : 1),
        thread_([this](std::stop_token stop) { run(stop); }) {}

  /// The next item, in order; nothing at the end (and ever after).
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty() || ended_; });
    if (items_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    changed_.notify_all();
    return item;
  }

 private:
  void run(const std::stop_token& stop) {
    try {
      while (wait_for_room(stop)) {
        auto item = make_();
        if (!item) break;
        put(std::move(*item));
      }
      end(nullptr);
    } catch (...) {
      end(std::current_exception());
    }
  }

  bool wait_for_room(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [this] { return items_.size() < capacity_; });
    return !stop.stop_requested();
  }

  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_all();
  }

  void end(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    ended_ = true;
    changed_.notify_all();
  }

  std::function<std::optional<T>()> make_;
  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<T> items_;
  std::exception_ptr error_;
  bool ended_ = false;
  std::jthread thread_;  ///< Last: it must stop before what it uses goes.
};

}  // namespace gradwire
