#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/comm/communicator.h"

namespace gradwire {

/// One parameter's gradient in a bucket.
struct BucketTensor {
  std::string name;
  std::size_t offset = 0;   ///< Elements from the beginning of the bucket.
  std::size_t rows = 1;     ///< As a matrix: the first dimension ...
  std::size_t columns = 1;  ///< ... and all others.
};

/// Gradients that travel together, one after the other in one piece of memory.
struct BucketShape {
  std::size_t count = 0;  ///< Elements.
  DataType type = DataType::float32;
  bool exact = false;  ///< Never compressed: small tensors, vectors, other types than float32.
  std::vector<BucketTensor> tensors;
};

/// Averages buckets of gradients over ranks, in place, several at a time. Every rank starts the
/// same buckets in the same order, each at most once a step. All ranks end with the same bits.
/// start() and wait() may be called from different threads, one at a time each.
class Averager {
 public:
  virtual ~Averager() = default;

  /// Begins to average bucket `bucket`, which lies in `data` until wait() or done() says it is
  /// over. More urgent buckets overtake. Does not block for the network. Throws Exception.
  virtual void start(std::size_t bucket, LentSpan data, int urgency) = 0;

  /// Whether it is over: wait() would return, or throw, at once.
  virtual bool done(std::size_t bucket) = 0;

  /// Until the mean is in place. Throws Exception, if the communicator failed.
  virtual void wait(std::size_t bucket) = 0;

  /// A step is over: all buckets that were started have been waited for.
  virtual void end_step() = 0;

  /// What a checkpoint must hold so that a resumed run goes on with the same bits: the error
  /// feedback, by name ("PARAMETER.sent", "PARAMETER.mean", "codec.step"); spans of live memory.
  struct State {
    std::string name;
    LentSpan data;
  };
  virtual std::vector<State> state() = 0;

  /// Takes over what state() of this rank was in an earlier run. What `saved` lacks begins anew,
  /// and names that are no state of this averager are passed over. Call between steps. Throws
  /// Exception(invalid_argument) that names the parameter, if one has another shape or type.
  struct SavedState {
    std::string name;
    LentConstSpan data;
  };
  virtual void load_state(const std::vector<SavedState>& saved) = 0;

  /// One line for people: what travels how, and why.
  virtual std::string describe() const = 0;

  /// Calls `finished(bucket)` as soon as a bucket's mean is in place (or has failed), on whichever
  /// thread notices, for traces: it is short and does not wait. To be set before the first start().
  /// An averager that cannot tell before wait() need not call it.
  virtual void on_finished(std::function<void(std::size_t bucket)> /*finished*/) {}
};

}  // namespace gradwire
