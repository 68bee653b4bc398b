#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/train/bucket.h"
#include "gradwire/train/bucket_plan.h"
#include "gradwire/train/group.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// What averaging gradients has cost so far, on this rank.
struct ReducerStats {
  Duration exposed{};             ///< Waited for communication after backward had computed all.
  std::int64_t bytes = 0;         ///< Gradient bytes all-reduced: the textbook's G, summed up.
  std::int64_t operations = 0;    ///< All-reduces launched.
  std::int64_t synchronised = 0;  ///< Backward passes that ended with averaged gradients.
};

struct ReducerOptions {
  BucketLimits buckets;
  bool find_unused = false;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For the statistics.
};

/// Averages gradients over a group while backward computes them. One backward pass goes
///
///     prepare -> gradients arrive (hooks), buckets fill and leave in order -> all have left ->
///     end of backward: wait for all, gradients are the averages
///
/// Buckets leave strictly in the order of the plan, whatever order they fill in, so that all ranks
/// launch the same operations in the same order. Not to be moved: the hooks point here.
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

  const ReducerStats& stats() const { return stats_; }

 private:
  struct Place {
    std::size_t bucket = 0;
    std::size_t position = 0;
  };
  struct Flight {
    std::size_t missing = 0;
    c10::intrusive_ptr<c10d::Work> work;
  };
  using Accumulator = c10::intrusive_ptr<torch::autograd::Node>;

  void lay_out(const BucketLimits& limits);
  void add_hooks();
  void on_gradient(std::size_t parameter);
  void start();
  void mark_ready(std::size_t parameter);
  void fill(std::size_t parameter);
  void launch_full_buckets();
  void launch(std::size_t bucket);
  void launch_usage();
  void finish();
  void wait_for_all();
  void adopt_averages();
  void reset();
  void require_complete() const;
  std::vector<std::size_t> unused() const;
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;

  ProcessGroup group_;
  std::vector<NamedTensor> parameters_;
  ReducerOptions options_;
  bool average_ = false;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
  std::vector<Accumulator> accumulators_;  ///< The graph holds them weakly.
  std::vector<std::uintptr_t> hooks_;

  std::mutex mutex_;  ///< Autograd runs hooks on one thread a device.
  bool expecting_ = false;
  bool started_ = false;
  std::vector<Flight> flights_;
  std::size_t next_bucket_ = 0;
  std::vector<bool> ready_;
  std::vector<bool> touched_;  ///< Got a gradient since the last averaging.
  std::unordered_set<const torch::autograd::Node*> reachable_;
  torch::Tensor usage_;
  c10::intrusive_ptr<c10d::Work> usage_work_;
  ReducerStats stats_;
};

}  // namespace gradwire
