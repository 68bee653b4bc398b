#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace gradwire {

/// Operations that have begun and are not over, for whoever must wait for all of them and has to
/// keep none of their tensors alive for that. Thread-safe.
class UnderWay {
 public:
  /// Until its last copy is gone, the operation is under way. It may outlive this object.
  using Token = std::shared_ptr<const void>;

  Token begin();

  /// Waits for all that began before this call. Returns false if some of it is still under way
  /// after `timeout` (zero: no limit).
  bool wait(std::chrono::milliseconds timeout) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable over;
    std::set<std::uint64_t> numbers;  ///< Of those under way, in the order in which they began.
    std::uint64_t next = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace gradwire
