#pragma once

#include <functional>
#include <memory>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire::engine {

class WorkState;

/// Handle of an operation in flight; copies refer to the same operation. Thread-safe.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  /// Waits until the operation is complete and its buffers belong to the caller again. The waiting
  /// thread drives the network. Throws Exception if the operation failed; the message states the
  /// rank, the reason, and whether the buffer is intact.
  void wait() const;

  /// wait() for at most `timeout`. Returns false if the operation is still in flight then.
  bool wait_for(Duration timeout) const;

  /// Returns true if the operation has completed or failed. Does not drive the network.
  bool done() const;

  /// Returns the error of a failed operation; null if it succeeded or is in flight.
  std::shared_ptr<const Error> error() const;

  /// Returns the sender of a completed recv_any; -1 otherwise.
  Rank source() const;

  /// Calls `callback` once when the operation is done (immediately if it already is), on the thread
  /// that completed it. The callback must be short and must not wait.
  void on_done(std::function<void(const Work&)> callback) const;

  /// Says that no thread will wait() for this operation soon, because a callback continues: the
  /// engine's own thread then drives the network at once. Otherwise it stays away for up to 4 ms
  /// after a wait(), since the next one usually follows.
  void drive_in_background() const;

  bool valid() const { return state_ != nullptr; }

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace gradwire::engine
