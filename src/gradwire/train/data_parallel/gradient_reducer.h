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
#include "gradwire/trace/trace.h"
#include "gradwire/train/data_parallel/bucket.h"
#include "gradwire/train/data_parallel/bucket_layout.h"
#include "gradwire/train/data_parallel/reducer_stats.h"
#include "gradwire/train/group.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

struct ReducerOptions {
  BucketLimits buckets;
  Overlap overlap = Overlap::backward;
  bool find_unused = false;
  bool check_finite = false;           ///< Fail if a mean is not finite.
  std::size_t codec_min_elements = 0;  ///< Tensors with fewer elements are not compressed.
  AveragerOptions averager;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For statistics.
  TraceRecorder* trace = nullptr;  ///< Records the buckets' traffic; may be null.
};

/// Averages gradients over a group while backward computes them. The phases of a backward pass:
///
///     prepare -> hooks receive gradients, full buckets are launched in order -> all launched ->
///     end of backward -> settle each bucket: wait for it, replace its gradients by the averages
///
/// The end of backward settles all buckets. With Overlap::full, the consumer of a gradient settles
/// its bucket instead. Buckets are launched strictly in the order of the plan, regardless of the
/// order in which they fill. All ranks thus launch the same operations in the same order. Later
/// buckets, which forward needs first, have higher priority.
///
/// Not movable: the hooks refer to this object. Hooks run on autograd's threads; call the other
/// functions from one thread at a time.
class GradientReducer {
 public:
  GradientReducer(ProcessGroup group, std::vector<NamedTensor> parameters, ReducerOptions options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Call between forward and backward. `synchronize`: true if that backward averages; if false,
  /// gradients accumulate locally. `outputs`: tensors that backward may start from. They are only
  /// used to find unused parameters, and must not be empty then. Throws Exception(invalid_argument)
  /// if an earlier backward left parameters without a gradient.
  void prepare(const std::vector<torch::Tensor>& outputs, bool synchronize);

  /// Returns true if a finished backward has buckets that are not settled.
  bool in_flight() const { return backward_ended_; }
  /// Returns true if settle(bucket) would not block.
  bool arrived(std::size_t bucket);
  /// Waits for a bucket of a finished backward and replaces its gradients by the averages. Throws
  /// Exception: the communicator's, or invalid_argument for a mean that is not finite.
  void settle(std::size_t bucket);
  void settle_all();

  const BucketLayout& layout() const { return layout_; }
  const ReducerStats& stats() const { return stats_; }
  /// Timing of each bucket of the last backward.
  const std::vector<BucketTiming>& timings() const { return timings_; }
  Averager& averager() { return *averager_; }

 private:
  struct BucketState {
    std::size_t missing = 0;
    bool settled = false;
  };
  /// Purpose of the next backward's gradients; with `sums` they accumulate locally.
  enum class Awaited : std::uint8_t { nothing, sums, averages };
  using Accumulator = c10::intrusive_ptr<torch::autograd::Node>;

  ArgumentName name() const;
  void make_bucket_averager();
  void add_hooks();
  void on_gradient(std::size_t parameter);
  bool awaited_by_another(std::size_t parameter) const;
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
  void assign_gradients(std::size_t bucket);
  void require_finite_locally(std::size_t parameter) const;
  void require_finite(std::size_t bucket) const;
  void reset();
  void require_complete() const;
  std::vector<std::size_t> unused() const;
  std::size_t usage_index() const { return layout_.buckets.size(); }
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;

  ProcessGroup group_;
  std::vector<NamedTensor> parameters_;
  ReducerOptions options_;
  double scale_ = 1;  ///< Factor before averaging: 1 unless the backend can only sum.
  BucketLayout layout_;
  std::unique_ptr<Averager> averager_;
  std::vector<Accumulator> accumulators_;  ///< Kept alive here: the graph holds weak references.
  std::vector<std::uintptr_t> hooks_;

  std::mutex mutex_;  ///< Autograd runs hooks on one thread per device.
  std::atomic<Awaited> awaited_ = Awaited::nothing;  ///< Other reducers read it.
  bool started_ = false;
  bool backward_ended_ = false;
  std::vector<BucketState> bucket_states_;
  std::size_t next_bucket_ = 0;
  std::size_t settled_ = 0;
  std::size_t missing_ = 0;  ///< Parameters that are not ready.
  std::vector<bool> ready_;
  std::vector<bool> touched_;  ///< Received a gradient since the last averaging.
  /// Graph roots of the forwards since the last averaging, from which backward may start.
  /// References are weak: a freed graph, as after an evaluation with gradients, is ignored.
  std::vector<c10::weak_intrusive_ptr<torch::autograd::Node>> roots_;
  torch::Tensor usage_;         ///< Per parameter: ranks that used it, divided by the world size.
  torch::Tensor global_usage_;  ///< The same on the parameters' device, as it is reduced.
  bool usage_known_ = false;
  ReducerStats stats_;
  std::vector<BucketTiming> timings_;
};

}  // namespace gradwire
