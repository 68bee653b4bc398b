#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/gradient/make_averager.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/report/trace.h"
#include "gradwire/train/bucket.h"
#include "gradwire/train/bucket_layout.h"
#include "gradwire/train/group.h"
#include "gradwire/train/named_tensor.h"
#include "gradwire/train/reducer_stats.h"

namespace gradwire {

struct ReducerOptions {
  BucketLimits buckets;
  Overlap overlap = Overlap::backward;
  bool find_unused = false;
  bool check_finite = false;           ///< A mean that is not finite is an error.
  std::size_t codec_min_elements = 0;  ///< Smaller tensors are not compressed.
  AveragerOptions averager;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For the statistics.
  TraceRecorder* trace = nullptr;  ///< Gets the buckets' travels; null: nobody does.
};

/// Averages gradients over a group while backward computes them. One backward pass goes
///
///     prepare -> gradients arrive (hooks), buckets fill and leave in order -> all have left ->
///     end of backward -> settle each bucket: wait for it, its gradients are the averages
///
/// The end of backward settles all buckets, unless what overlaps is `full`: then whoever needs a
/// gradient does. Buckets leave strictly in the order of the plan, whatever order they fill in, so
/// that all ranks launch the same operations in the same order; later ones, which forward needs
/// first, are more urgent. Not to be moved: the hooks point here. Hooks run on autograd's threads;
/// the other functions are for one thread at a time.
class GradientReducer {
 public:
  GradientReducer(ProcessGroup group, std::vector<NamedTensor> parameters, ReducerOptions options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// To be called between forward and backward. `synchronise`: whether that backward averages
  /// (otherwise gradients just accumulate here). `outputs`: what backward may start from; looked at
  /// only if unused parameters are to be found, and then it must not be empty. Throws
  /// Exception(invalid_argument) if an earlier backward left parameters without a gradient.
  void prepare(const std::vector<torch::Tensor>& outputs, bool synchronise);

  /// Whether a backward is over whose buckets are not all settled.
  bool in_flight() const { return ended_; }
  /// Whether settle(bucket) need not wait.
  bool arrived(std::size_t bucket);
  /// Waits for a bucket of a backward that is over, and makes its averages the gradients. Throws
  /// Exception: the communicator's, or invalid_argument for a mean that is not finite.
  void settle(std::size_t bucket);
  void settle_all();

  const BucketLayout& layout() const { return layout_; }
  const ReducerStats& stats() const { return stats_; }
  /// When each bucket of the last backward travelled.
  const std::vector<BucketTiming>& timings() const { return timings_; }
  Averager& averager() { return *averager_; }

 private:
  struct Flight {
    std::size_t missing = 0;
    bool settled = false;
  };
  /// What the next backward's gradients are for: `sums` just accumulate here.
  enum class Awaited : std::uint8_t { nothing, sums, averages };
  using Accumulator = c10::intrusive_ptr<torch::autograd::Node>;

  ArgumentName name() const;
  void make_averager_of_buckets();
  void add_hooks();
  void on_gradient(std::size_t parameter);
  bool another_awaits(std::size_t parameter) const;
  [[noreturn]] void refuse_gradient(std::size_t parameter) const;
  void start();
  void mark_ready(std::size_t parameter);
  void fill(std::size_t parameter);
  void launch_full_buckets();
  void launch(std::size_t bucket);
  void launch_usage();
  void end_of_backward();
  void settle_one(std::size_t bucket);
  void wait_for(std::size_t bucket);
  void adopt(std::size_t bucket);
  void require_finite_here(std::size_t parameter) const;
  void require_finite(std::size_t bucket) const;
  void reset();
  void require_complete() const;
  std::vector<std::size_t> unused() const;
  std::size_t usage_index() const { return layout_.buckets.size(); }
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;

  ProcessGroup group_;
  std::vector<NamedTensor> parameters_;
  ReducerOptions options_;
  double scale_ = 1;  ///< Before averaging: 1 unless the backend can only sum.
  BucketLayout layout_;
  std::unique_ptr<Averager> averager_;
  std::vector<Accumulator> accumulators_;  ///< The graph holds them weakly.
  std::vector<std::uintptr_t> hooks_;

  std::mutex mutex_;  ///< Autograd runs hooks on one thread a device.
  std::atomic<Awaited> awaited_ = Awaited::nothing;  ///< Other reducers look at it.
  bool started_ = false;
  bool ended_ = false;
  std::vector<Flight> flights_;
  std::size_t next_bucket_ = 0;
  std::size_t settled_ = 0;
  std::size_t missing_ = 0;  ///< Parameters that are not ready.
  std::vector<bool> ready_;
  std::vector<bool> touched_;  ///< Got a gradient since the last averaging.
  /// Where backward may begin: at what forwards returned since the last averaging. What nobody has
  /// any more, as after an evaluation with gradients, leads nowhere.
  std::vector<c10::weak_intrusive_ptr<torch::autograd::Node>> roots_;
  torch::Tensor usage_;         ///< Ranks that used each parameter, divided by their number.
  torch::Tensor usage_of_all_;  ///< The same where the parameters are, as it travels.
  bool usage_known_ = false;
  ReducerStats stats_;
  std::vector<BucketTiming> timings_;
};

}  // namespace gradwire
