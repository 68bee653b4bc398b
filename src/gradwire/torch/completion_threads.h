#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>

#include "gradwire/base/fork.h"

namespace gradwire {

/// Threads that complete futures, and so run users' callbacks (`future.then(...)`). These must not
/// run on the network thread, as a callback may post operations and wait for them. PowerSGD's hook
/// waits within callbacks, for several buckets at once, so by default there are as many threads as
/// running callbacks. Threads start on demand. Thread-safe.
class CompletionThreads {
 public:
  /// `max_threads`: maximum number of threads; with one, tasks run in order.
  explicit CompletionThreads(std::size_t max_threads = std::numeric_limits<std::size_t>::max());
  CompletionThreads(const CompletionThreads&) = delete;
  CompletionThreads& operator=(const CompletionThreads&) = delete;
  ~CompletionThreads() { close(); }

  /// Queues `task`, which must not throw. After close() it runs on the calling thread.
  void run(std::function<void()> task);

  /// Returns when all tasks have run, except a task that calls it. Returns at once in a forked
  /// child.
  void close();

 private:
  struct Queue;
  ForkGuard fork_;
  std::shared_ptr<Queue> queue_;  ///< Shared with the threads.
};

}  // namespace gradwire
