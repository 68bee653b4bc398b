#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/comm.hpp>

#include "gradwire/gradient/make_averager.h"
#include "gradwire/report/trace.h"
#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/staged_sequence.h"

namespace gradwire {

/// Gradients of PyTorch's own DistributedDataParallel through an Averager: a codec with error
/// feedback as a communication hook. DDP plans its buckets anew after its first step, so that what
/// they are is known after the second: the first two steps (kPlainSteps) travel as they are.
///
/// Buckets of other types than float32 always do. Those of an accelerator are coded on the host, by
/// way of pinned memory (device_staging.h). Thread-safe as far as DDP needs it: one backward at a
/// time.
class CodecHook {
 public:
  static constexpr int kPlainSteps = 2;
  using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;
  using SavedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// Throws Exception(invalid_argument) for an unknown codec.
  CodecHook(std::shared_ptr<Communicator> communicator, AveragerOptions options);
  ~CodecHook() { close(); }

  /// Begins to average a bucket in place; the future gives its tensor, and makes whoever waits for
  /// it on a device do so on its current stream.
  FuturePointer run(const c10d::GradBucket& bucket);

  /// One line for people.
  std::string describe() const;

  /// The error feedback of this rank, by name: copies, on the CPU. Empty before the codec applies.
  /// Between steps.
  SavedTensors state() const;
  /// Takes over what state() was in an earlier run of the same model on as many ranks, on whichever
  /// device it is now; kept until the codec applies. Throws Exception(invalid_argument) if one has
  /// another size, and goes on with the state that it has.
  void load_state(SavedTensors saved);

  /// From now on each bucket is a span of communication, and the time from when the last one starts
  /// until all are there one of waiting. Before the first backward.
  void trace(std::shared_ptr<TraceRecorder> recorder) { recorder_ = std::move(recorder); }

  /// Ends it: no more buckets.
  void close();

 private:
  /// A bucket under way.
  struct Flight {
    std::size_t index = 0;
    bool last = false;
    std::function<void()> trace_end;  ///< May be empty.
  };

  void check_shape(const c10d::GradBucket& bucket);
  std::function<void()> average(const at::Tensor& values, const Flight& flight);
  FuturePointer average_here(const at::Tensor& values, const Flight& flight);
  FuturePointer average_staged(const at::Tensor& values, const Flight& flight);
  std::function<void()> trace_begin(const c10d::GradBucket& bucket) const;
  void end_step();
  void begin();

  std::shared_ptr<Communicator> communicator_;
  AveragerOptions options_;
  std::vector<BucketShape> shapes_;
  std::unique_ptr<Averager> averager_;
  SavedTensors saved_;
  std::shared_ptr<TraceRecorder> recorder_;  ///< May be null.
  int steps_ = 0;
  CompletionThreads waiter_{1};  ///< Waits for one bucket after the other.
  StagedSequence staged_;
};

/// The hook as DDP's reducer takes it.
std::unique_ptr<c10d::CommHookInterface> as_ddp_hook(std::shared_ptr<CodecHook> hook);

}  // namespace gradwire
