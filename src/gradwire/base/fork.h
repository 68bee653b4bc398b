#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace gradwire {

/// How many forks lie between the first process that ran this code and the calling one. Costs a
/// memory access. Thread-safe.
unsigned fork_count();

/// Remembers the process in which it was made. A forked child has the memory of its parent, locked
/// mutexes included, but none of its threads: what owns threads must not be used there, not even to
/// end it.
class ForkGuard {
 public:
  /// Returns true if the calling process was forked from that one.
  bool in_child() const { return made_at_ != fork_count(); }

  /// In a child: keeps `memory` for good, as destroying it would wait for threads that are not
  /// there.
  template <class T>
  static void leak(std::shared_ptr<T> memory) {
    [[maybe_unused]] auto* kept = std::make_unique<std::shared_ptr<T>>(std::move(memory)).release();
  }

 private:
  unsigned made_at_ = fork_count();
};

/// Takes descriptors away from forked children, as FD_CLOEXEC does from programs that are executed.
/// While a child holds a copy of a connection, the kernel does not tell the peer that this process
/// has died. In the child the numbers stay in use, for /dev/null. Thread-safe. To be destroyed
/// before the descriptors are closed.
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
