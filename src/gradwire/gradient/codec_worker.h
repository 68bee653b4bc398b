#pragma once

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "gradwire/base/fork.h"

namespace gradwire {

/// What is to be done next: the most urgent task, of those the one of the latest stage (what was
/// begun first is brought to its end first), of those the oldest. Thread-safe; adding takes no
/// other lock, so that an operation's completion may do it.
class TaskQueue {
 public:
  using Task = std::function<void()>;

  /// Forgets the task if the queue is closed.
  void add(int urgency, int stage, Task task);

  /// Waits for a task and takes it out. Empty: the queue is closed.
  Task next();

  /// Forgets what has not been taken out.
  void close();

 private:
  struct Key {
    std::int64_t less_urgent;
    std::int64_t earlier_stage;
    std::uint64_t number;
    auto operator<=>(const Key&) const = default;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Task> tasks_;
  std::uint64_t added_ = 0;
  bool closed_ = false;
};

/// One thread that does the tasks of a queue: coding must keep neither those who compute gradients
/// nor those who drive the network.
class CodecWorker {
 public:
  CodecWorker();
  /// Waits for the task under way; the others are forgotten. In a forked child returns at once.
  ~CodecWorker();
  CodecWorker(const CodecWorker&) = delete;
  CodecWorker& operator=(const CodecWorker&) = delete;

  /// Outlives the worker where somebody still holds it.
  const std::shared_ptr<TaskQueue>& queue() const { return queue_; }

 private:
  ForkGuard fork_;
  std::shared_ptr<TaskQueue> queue_;
  std::thread thread_;
};

}  // namespace gradwire
