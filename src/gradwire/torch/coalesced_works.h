#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace gradwire {

/// What each thread asks a group for between startCoalescing() and endCoalescing(). PyTorch does
/// not end what an exception interrupts; so that a forgotten list holds no tensors, what has
/// succeeded is dropped as the list grows. Thread-safe.
class CoalescedWorks {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// Of the calling thread; forgets a list that it did not end.
  void start();
  /// Does nothing if the calling thread has no list.
  void add(const WorkPointer& work);
  /// What of the calling thread's list is under way, has failed or was not dropped yet.
  std::vector<WorkPointer> end();

 private:
  static constexpr std::size_t kCleanAt = 64;
  struct List {
    std::vector<WorkPointer> works;
    std::size_t clean_at = kCleanAt;  ///< Number of works.
  };

  std::mutex mutex_;
  std::map<std::thread::id, List> lists_;  ///< Each touched by its own thread alone.
};

}  // namespace gradwire
