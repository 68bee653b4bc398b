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

namespace gradwire::exchange {

/// Priority queue of tasks. The highest priority is first, then the latest stage (so that started
/// work is finished first), then the oldest task. Thread-safe; add() takes no other lock, so that
/// an operation's completion callback may call it.
class TaskQueue {
 public:
  using Task = std::function<void()>;

  /// Adds a task; drops it if the queue is closed.
  void add(int priority, int stage, Task task);

  /// Blocks until a task is available and removes it. Returns an empty task if the queue is closed.
  Task next();

  /// Closes the queue and drops all remaining tasks.
  void close();

 private:
  struct Key {
    std::int64_t lower_priority;
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

/// One thread that runs the tasks of a queue, so that coding blocks neither the threads that
/// compute gradients nor the threads that drive the network.
class CodecWorker {
 public:
  CodecWorker();
  /// Waits for the running task and drops the others. In a forked child returns at once.
  ~CodecWorker();
  CodecWorker(const CodecWorker&) = delete;
  CodecWorker& operator=(const CodecWorker&) = delete;

  /// The queue outlives the worker while other owners hold it.
  const std::shared_ptr<TaskQueue>& queue() const { return queue_; }

 private:
  ForkGuard fork_;
  std::shared_ptr<TaskQueue> queue_;
  std::thread thread_;
};

}  // namespace gradwire::exchange
