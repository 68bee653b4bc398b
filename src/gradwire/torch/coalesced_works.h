#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace gradwire {

/// Collects each thread's operations between startCoalescing() and endCoalescing(). PyTorch does
/// not call endCoalescing() if an exception interrupts the block. To avoid holding tensors in an
/// abandoned list, successful works are dropped as the list grows. Thread-safe.
class CoalescedWorks {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// Starts the calling thread's list; discards one that was not ended.
  void start();
  /// No effect if the calling thread has no list.
  void add(const WorkPointer& work);
  /// Ends the calling thread's list and returns it, without works that were dropped after success.
  std::vector<WorkPointer> end();

 private:
  static constexpr std::size_t kCleanAt = 64;
  struct List {
    std::vector<WorkPointer> works;
    std::size_t clean_at = kCleanAt;  ///< Number of works that triggers the next cleanup.
  };

  std::mutex mutex_;
  std::map<std::thread::id, List> lists_;  ///< Each is accessed only by its own thread.
};

}  // namespace gradwire
