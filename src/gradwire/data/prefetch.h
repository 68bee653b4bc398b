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

/// Produces items on a separate thread while the caller uses the current one. At most `capacity`
/// items wait. `make` returns nullopt at the end. An exception of `make` is rethrown by next(),
/// after the items produced before it. The destructor waits for at most the item that is being
/// produced. next() is not thread-safe.
template <class T>
class Prefetcher {
 public:
  Prefetcher(std::function<std::optional<T>()> make, std::size_t capacity)
      : make_(std::move(make)),
        capacity_(capacity > 0 ? capacity : 1),
        thread_([this](std::stop_token stop) { run(stop); }) {}

  /// Returns the next item in order, or nullopt at the end and in every later call.
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
  std::jthread thread_;  ///< Last: destroyed before the members that it uses.
};

}  // namespace gradwire
