#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>

#include "gradwire/base/fork.h"

namespace gradwire {

/// Where futures are completed, and so where callbacks of users run (`future.then(...)`): away from
/// the thread that drives the network, for a callback may post operations and wait for them. While
/// it waits, others must get on (PowerSGD's hook waits within callbacks, for several buckets at
/// once), so there are as many threads as callbacks under way, unless told otherwise. Threads start
/// when they are first needed. Thread-safe.
class CompletionThreads {
 public:
  /// With at most one thread tasks run one after the other, in their order.
  explicit CompletionThreads(std::size_t at_most = std::numeric_limits<std::size_t>::max());
  CompletionThreads(const CompletionThreads&) = delete;
  CompletionThreads& operator=(const CompletionThreads&) = delete;
  ~CompletionThreads() { close(); }

  /// Has `task` run soon, which must not throw; on this very thread after close().
  void run(std::function<void()> task);

  /// Returns when all tasks have run, except one that calls it; at once in a forked child.
  void close();

 private:
  struct Queue;
  ForkGuard fork_;
  std::shared_ptr<Queue> queue_;  ///< Shared with the threads.
};

}  // namespace gradwire
