#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/train/data_parallel/reducer_stats.h"
#include "gradwire/train/group.h"
#include "gradwire/train/zero/flat_unit.h"
#include "gradwire/train/zero/unit_exchange.h"

namespace gradwire {

struct GradientShardsOptions {
  ProcessGroup group;
  /// Stage 1: keeps memory for all gradients, and accumulates gradients that are not synchronized
  /// in it (16-bit gradients: in separate 32-bit memory). Otherwise memory for a unit is allocated
  /// when backward reaches it, and freed when its mean has arrived; only this rank's part
  /// accumulates.
  bool keep_all = false;
  /// Each backward waits for the reductions of the previous one, as codecs require.
  bool serialize_passes = false;
  Overlap overlap = Overlap::full;
  std::shared_ptr<const Clock> clock;
  std::function<void(std::size_t unit)> complete;  ///< Called when a unit's last gradient is ready.
  std::function<void()> backward_end;
  std::recursive_mutex* mutex = nullptr;  ///< Held while autograd's threads run in here.
};

/// This rank's part of the mean gradients. The phases of a backward pass:
///
///     prepare -> hooks receive gradients, complete units are reduced in a given order ->
///     end of backward: missing gradients count as zero -> settle(unit), take(unit)
///
/// The end of backward settles all units, except with Overlap::full. Not thread-safe, apart from
/// autograd's threads.
class GradientShards {
 public:
  /// Both must outlive this.
  GradientShards(std::vector<FlatUnit>& units, UnitExchange& exchange,
                 GradientShardsOptions options);
  ~GradientShards();
  GradientShards(const GradientShards&) = delete;
  GradientShards& operator=(const GradientShards&) = delete;

  /// Called after forward. `order`: order of the units' reductions, the same on every rank.
  /// `synchronize`: true if the next backward is reduced (always the case without keep_all). Throws
  /// Exception(invalid_argument) if the previous backward did not complete.
  void prepare(std::vector<std::size_t> order, bool synchronize);

  /// Call within backward, when it begins. Repeated calls have no effect.
  void begin_backward();

  /// Returns true if settle() would not block.
  bool arrived(std::size_t unit);
  /// Waits for the reduction of a unit and accumulates its mean.
  void settle(std::size_t unit);
  void settle_all();

  /// This rank's part of the mean, after settle(); undefined if there was no backward.
  const torch::Tensor& gradient(std::size_t unit) const { return gradients_[unit]; }
  torch::Tensor take(std::size_t unit) { return std::exchange(gradients_[unit], {}); }

  const ReducerStats& stats() const { return stats_; }
  std::size_t gradient_bytes() const;  ///< Kept for the step: model state.
  std::size_t buffer_bytes() const;    ///< In flight, or idle for reuse.

 private:
  struct Parameter {
    torch::Tensor tensor;
    std::string name;
    std::size_t unit = 0;
    std::size_t member = 0;
    /// Kept alive here: the graph holds weak references.
    c10::intrusive_ptr<torch::autograd::Node> accumulator;
    std::uintptr_t hook = 0;
    bool filled = false;
  };

  void add_hooks();
  void on_gradient(std::size_t parameter);
  void accumulate_locally(Parameter& parameter);
  torch::Tensor sum_of(const Parameter& parameter);
  torch::Tensor with_sum(const Parameter& parameter, const torch::Tensor& gradient);
  void fill(Parameter& parameter);
  void put(const torch::Tensor& gradient, torch::Tensor& place) const;
  torch::Tensor place_of(const Parameter& parameter);
  void allocate_buffer(std::size_t unit);
  torch::Tensor new_buffer(const FlatUnit& unit);
  void recycle(torch::Tensor buffer);
  void launch_complete();
  void launch(std::size_t unit);
  void end_of_backward();
  void store_mean(std::size_t unit, const torch::Tensor& mean);
  void reset();
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;

  std::vector<FlatUnit>& units_;
  UnitExchange& exchange_;
  GradientShardsOptions options_;
  double scale_ = 1;  ///< Factor before the reduction: 1 unless the backend can only sum.
  std::vector<Parameter> parameters_;

  std::vector<torch::Tensor> buffers_;    ///< By unit: all ranks' parts; undefined while unused.
  std::vector<torch::Tensor> sums_;       ///< By unit: 32-bit sums of 16-bit gradients.
  std::vector<torch::Tensor> means_;      ///< By unit: destination of this rank's part.
  std::vector<torch::Tensor> gradients_;  ///< By unit: this rank's part, settled.
  std::vector<torch::Tensor> idle_;       ///< Buffers for reuse.
  std::vector<std::size_t> in_flight_;    ///< Units, in launch order.

  bool prepared_ = false;
  bool backward_begun_ = false;
  bool accumulating_ = false;
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;  ///< Index in order_ of the next unit to launch.
  std::vector<std::size_t> missing_;
  ReducerStats stats_;
  std::shared_ptr<GradientShards*> self_;  ///< Callbacks hold weak references to it.
};

}  // namespace gradwire
