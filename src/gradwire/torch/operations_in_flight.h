#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace gradwire {

/// Tracks operations in flight, to wait for all of them without keeping their tensors alive.
/// Thread-safe.
class OperationsInFlight {
 public:
  /// The operation is in flight until the last copy is released. May outlive this object.
  using Token = std::shared_ptr<const void>;

  Token begin();

  /// Waits for all operations that began before this call. Returns false if any is still in flight
  /// after `timeout` (zero: no limit).
  bool wait(std::chrono::milliseconds timeout) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable over;
    std::set<std::uint64_t> numbers;  ///< Numbers of operations in flight, in start order.
    std::uint64_t next = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace gradwire
