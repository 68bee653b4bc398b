#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace gradwire {

/// Returns the number of forks between the first process that ran this code and the calling one.
/// Costs one memory access. Thread-safe.
unsigned fork_count();

/// Remembers the process that created it. A forked child has a copy of its parent's memory, locked
/// mutexes included, but none of its threads. Objects that own threads must not be used in the
/// child, not even destroyed.
class ForkGuard {
 public:
  /// Returns true if the calling process was forked from the one that created this guard.
  bool in_child() const { return made_at_ != fork_count(); }

  /// In a child: leaks `memory`, as its destructor would wait for threads that do not exist there.
  template <class T>
  static void leak(std::shared_ptr<T> memory) {
    [[maybe_unused]] auto* kept = std::make_unique<std::shared_ptr<T>>(std::move(memory)).release();
  }

 private:
  unsigned made_at_ = fork_count();
};

/// Closes descriptors in forked children, as FD_CLOEXEC does on exec. While a child holds a copy of
/// a connection, the kernel does not tell the peer that this process has died. In the child the
/// numbers stay in use, open on /dev/null. Destroy it before closing the descriptors. Thread-safe.
class CloseOnFork {
 public:
  explicit CloseOnFork(std::vector<int> descriptors);
  CloseOnFork(const CloseOnFork&) = delete;
  CloseOnFork& operator=(const CloseOnFork&) = delete;
  ~CloseOnFork();

 private:
  std::vector<int> descriptors_;
};

}  // namespace gradwire
