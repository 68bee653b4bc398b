#pragma once

#include <functional>
#include <memory>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

class WorkState;

/// An operation under way. A handle: copies mean the same operation. Thread-safe.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  /// Returns when the operation is complete and its buffers are the caller's again. The thread
  /// that waits drives the network meanwhile. Throws Exception if the operation failed; the message
  /// says who and what, and whether the buffer is intact.
  void wait() const;

  /// wait() for at most `timeout`: false if it is still under way then.
  bool wait_for(Duration timeout) const;

  /// Whether it has completed or failed. Does not drive anything.
  bool done() const;

  /// The error it failed with, or null if it succeeded or is under way.
  std::shared_ptr<const Error> error() const;

  /// Of recv_any, once done: the rank whose message it was. -1 otherwise.
  Rank source() const;

  /// Calls `callback` once when the operation is done (at once if it is already), on the thread
  /// that completed it: it must be short and must not wait.
  void on_done(std::function<void(const Work&)> callback) const;

  bool valid() const { return state_ != nullptr; }

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace gradwire
