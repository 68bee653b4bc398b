#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/comm/communicator.h"
#include "gradwire/exchange/exchange.h"

namespace gradwire {

using BucketTensor = UnitTensor;
using BucketShape = UnitShape;

/// Averages buckets of gradients over ranks, in place, several at a time. Every rank starts the
/// same buckets in the same order, each at most once a step. The result is bitwise identical on all
/// ranks. start() and wait() may be called from different threads, but each from one thread at a
/// time.
class Averager {
 public:
  virtual ~Averager() = default;

  /// Starts averaging bucket `bucket`, whose values are in `data`. `data` is lent until wait()
  /// returns or throws, or done() returns true. `priority`: buckets of higher priority overtake
  /// others. Does not block on the network. Throws Exception.
  virtual void start(std::size_t bucket, LentSpan data, int priority) = 0;

  /// Returns true if wait() would return or throw at once.
  virtual bool done(std::size_t bucket) = 0;

  /// Blocks until the mean is in place. Throws Exception if the communicator failed.
  virtual void wait(std::size_t bucket) = 0;

  /// Ends a step. Called after all started buckets have been waited for.
  virtual void end_step() = 0;

  /// What a checkpoint must hold for a resumed run to be bitwise identical: the error-feedback
  /// residuals, by name ("PARAMETER.sent", "PARAMETER.mean", "codec.step"), as spans of live
  /// memory.
  struct State {
    std::string name;
    LentSpan data;
  };
  virtual std::vector<State> state() = 0;

  /// Restores what state() of this rank returned in an earlier run. State missing from `saved` is
  /// reset; unknown names are ignored. Called between steps. Throws Exception(invalid_argument)
  /// that names the parameter if its shape or type differs.
  struct SavedState {
    std::string name;
    LentConstSpan data;
  };
  virtual void load_state(const std::vector<SavedState>& saved) = 0;

  /// Describes in one readable line how gradients are sent, and why.
  virtual std::string describe() const = 0;

  /// Calls `finished(bucket)` as soon as a bucket's mean is in place or has failed, for traces. The
  /// callback runs on any thread and must be short and must not block. Called before the first
  /// start(). An averager that learns of completion only in wait() need not call it.
  virtual void on_finished(std::function<void(std::size_t bucket)> /*finished*/) {}
};

}  // namespace gradwire
