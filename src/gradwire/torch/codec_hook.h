#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/comm.hpp>

#include "gradwire/exchange/make_exchange.h"
#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/hybrid_collectives.h"
#include "gradwire/torch/staged_sequence.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

/// DDP communication hook: averages the gradients of PyTorch's DistributedDataParallel with an
/// Exchange, that is with a codec and error feedback. DDP rebuilds its buckets after its first
/// step, so their layout is final only after the second. The first two steps (kPlainSteps) are
/// therefore sent uncompressed.
///
/// Buckets of types other than float32 are always sent uncompressed. Buckets on an accelerator are
/// encoded on the host through pinned memory (device_staging.h). Thread-safe for one backward at a
/// time, as DDP requires.
class CodecHook : public std::enable_shared_from_this<CodecHook> {
 public:
  static constexpr int kPlainSteps = 2;
  using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;
  using SavedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// Made by std::make_shared(). `hybrid`: buckets are averaged in two levels, with the codec
  /// between hosts; `communicator` is then that of the ranks at one place. Throws
  /// Exception(invalid_argument) for an unknown codec, and for PowerSGD in two levels.
  CodecHook(std::shared_ptr<Communicator> communicator, exchange::ExchangeOptions options,
            std::shared_ptr<HybridCollectives> hybrid = nullptr);
  ~CodecHook() { close(); }

  /// Starts averaging a bucket in place. The future's value is the bucket's tensor. Waiting for it
  /// on a device makes the current stream wait.
  FuturePointer run(const c10d::GradBucket& bucket);

  /// One line of text for logs.
  std::string describe() const;

  /// This rank's error-feedback residuals by name, copied to the CPU. Empty before the codec
  /// applies. Call between steps.
  SavedTensors state() const;
  /// Restores the state() of an earlier run of the same model on the same number of ranks; the
  /// device may differ. The state is kept until the codec applies. Throws
  /// Exception(invalid_argument) if a tensor has another size; the current state is then unchanged.
  void load_state(SavedTensors saved);

  /// Starts recording. Each bucket becomes a communication span. The time from the start of the
  /// last bucket to the arrival of all becomes a wait span. Call before the first backward.
  void trace(std::shared_ptr<TraceRecorder> recorder) { recorder_ = std::move(recorder); }

  /// Ends the hook: accepts no more buckets.
  void close();

 private:
  /// A bucket in flight.
  struct PendingBucket {
    std::size_t index = 0;
    bool last = false;
    std::function<void()> trace_end;  ///< May be empty.
  };

  void check_shape(const c10d::GradBucket& bucket);
  std::function<void()> average(const at::Tensor& values, const PendingBucket& pending);
  FuturePointer average_on_host(const at::Tensor& values, const PendingBucket& pending);
  FuturePointer average_anywhere(const at::Tensor& values, const PendingBucket& pending);
  FuturePointer average_in_two_levels(const at::Tensor& values, const PendingBucket& pending);
  FuturePointer average_staged(const at::Tensor& values, const PendingBucket& pending);
  std::function<void()> trace_begin(const c10d::GradBucket& bucket) const;
  void end_step();
  void begin();

  std::mutex mutex_;        ///< Held while a bucket of two levels is started.
  bool is_closed_ = false;  ///< No more of them are started.
  std::shared_ptr<Communicator> communicator_;
  exchange::ExchangeOptions options_;
  std::shared_ptr<HybridCollectives> hybrid_;  ///< May be null.
  std::vector<exchange::UnitShape> shapes_;
  std::unique_ptr<exchange::Exchange> exchange_;
  SavedTensors saved_;
  std::shared_ptr<TraceRecorder> recorder_;  ///< May be null.
  int steps_ = 0;
  CompletionThreads waiter_{1};  ///< Waits for one bucket after the other.
  StagedSequence staged_;
};

/// The hook as DDP's reducer takes it.
std::unique_ptr<c10d::CommHookInterface> as_ddp_hook(std::shared_ptr<CodecHook> hook);

}  // namespace gradwire
