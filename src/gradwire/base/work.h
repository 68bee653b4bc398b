#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

class WorkState;

/// Handle of an operation in flight; copies refer to the same operation. Its memory is lent until
/// wait() has returned or thrown, or done() has returned true. Thread-safe if its state is; those
/// of a communicator are.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  /// Waits until the operation is complete and its buffers belong to the caller again. The waiting
  /// thread drives the network. On an accelerator, makes the current stream wait instead. Throws
  /// Exception if the operation failed; the message states the rank, the reason, and whether the
  /// buffer is intact.
  void wait() const;

  /// wait() for at most `timeout`. Returns false if the operation is still in flight then.
  bool wait_for(Duration timeout) const;

  /// Returns true if wait() would return or throw at once. Does not drive the network.
  bool done() const;

  /// Returns the error of a failed operation; null if it succeeded or is in flight.
  std::shared_ptr<const Error> error() const;

  /// Returns the sender of a completed recv_any; -1 otherwise.
  Rank source() const;

  /// Calls `callback` once when the operation is done (immediately if it already is), on the thread
  /// that completed it. The callback must be short and must not wait. Operations that learn of
  /// their end only in wait() call it there.
  void on_done(std::function<void(const Work&)> callback) const;

  /// Says that no thread will wait() for this operation soon, because a callback continues: the
  /// engine's own thread then drives the network at once. Otherwise it stays away for up to 4 ms
  /// after a wait(), since the next one usually follows.
  void drive_in_background() const;

  bool valid() const { return state_ != nullptr; }

 private:
  std::shared_ptr<WorkState> state_;
};

/// An operation in flight, as Work sees it: of a communicator's engine, of another library, or in
/// virtual time. Made by std::make_shared.
class WorkState : public std::enable_shared_from_this<WorkState> {
 public:
  virtual ~WorkState() = default;

  virtual bool done() = 0;
  virtual void wait() = 0;
  virtual void on_done(std::function<void(const Work&)> callback) = 0;
  /// Operations that know no timeout wait for their end.
  virtual bool wait_for(Duration /*timeout*/) {
    wait();
    return true;
  }
  virtual std::shared_ptr<const Error> error() { return nullptr; }
  virtual Rank source() { return -1; }
  virtual void drive_in_background() {}

 protected:
  Work handle() { return Work(shared_from_this()); }
};

/// Returns an operation that has succeeded.
Work completed_work();

/// Returns the same operation with another wait(): if it is in flight, `wait` is called with it,
/// which waits for it and may do more before and after.
Work work_with_wait(Work work, std::function<void(const Work&)> wait);

}  // namespace gradwire
