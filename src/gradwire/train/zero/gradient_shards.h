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
#include "gradwire/train/group.h"
#include "gradwire/train/reducer_stats.h"
#include "gradwire/train/zero/flat_unit.h"
#include "gradwire/train/zero/unit_exchange.h"

namespace gradwire {

struct GradientShardsOptions {
  ProcessGroup group;
  /// Stage 1: a rank has memory for all gradients all the time, and accumulates in it what is not
  /// to be synchronised (of 16 bits, in other memory that has 32). Otherwise memory is taken for a
  /// unit when backward comes to it, and given back when its mean has come; what accumulates is
  /// this rank's part.
  bool keep_all = false;
  /// Backward waits for what the one before has sent, as codecs want it.
  bool one_pass_at_a_time = false;
  Overlap overlap = Overlap::full;
  std::shared_ptr<const Clock> clock;
  std::function<void(std::size_t unit)> complete;  ///< A unit's last gradient has come.
  std::function<void()> backward_over;
  std::recursive_mutex* mutex = nullptr;  ///< Held while autograd's threads are in here.
};

/// This rank's part of the mean gradients. One backward pass goes
///
///     prepare -> gradients arrive (hooks); complete units leave to be reduced, in a given order ->
///     end of backward: parameters without a gradient count as zero -> settle(unit), take(unit)
///
/// The end of backward settles all, unless what overlaps is `full`. Not thread-safe, apart from
/// autograd's threads.
class GradientShards {
 public:
  /// Both must outlive this.
  GradientShards(std::vector<FlatUnit>& units, UnitExchange& exchange,
                 GradientShardsOptions options);
  ~GradientShards();
  GradientShards(const GradientShards&) = delete;
  GradientShards& operator=(const GradientShards&) = delete;

  /// Forward is over. `order`: of the units' reductions, the same on every rank. `synchronise`:
  /// whether the backward to come is reduced (without keep_all it always is). Throws
  /// Exception(invalid_argument) if the one before was not complete.
  void prepare(std::vector<std::size_t> order, bool synchronise);

  /// To be called from within backward, when it begins: again is nothing.
  void begin_backward();

  /// Whether settle() need not wait.
  bool arrived(std::size_t unit);
  /// Waits for a unit that left; adds it to what there was.
  void settle(std::size_t unit);
  void settle_all();

  /// After settle(): this rank's part; undefined if there was no backward.
  const torch::Tensor& gradient(std::size_t unit) const { return gradients_[unit]; }
  torch::Tensor take(std::size_t unit) { return std::exchange(gradients_[unit], {}); }

  const ReducerStats& stats() const { return stats_; }
  std::size_t gradient_bytes() const;  ///< Kept for the step: model state.
  std::size_t buffer_bytes() const;    ///< On the way, or kept for what comes next.

 private:
  struct Parameter {
    torch::Tensor tensor;
    std::string name;
    std::size_t unit = 0;
    std::size_t member = 0;
    c10::intrusive_ptr<torch::autograd::Node> accumulator;  ///< The graph holds it weakly.
    std::uintptr_t hook = 0;
    bool filled = false;
  };

  void add_hooks();
  void on_gradient(std::size_t parameter);
  void accumulate_here(Parameter& parameter);
  torch::Tensor sum_of(const Parameter& parameter);
  torch::Tensor with_sum(const Parameter& parameter, const torch::Tensor& gradient);
  void fill(Parameter& parameter);
  void put(const torch::Tensor& gradient, torch::Tensor& place) const;
  torch::Tensor place_of(const Parameter& parameter);
  void make_room(std::size_t unit);
  torch::Tensor new_buffer(const FlatUnit& unit);
  void give_back(torch::Tensor buffer);
  void launch_complete();
  void launch(std::size_t unit);
  void end_of_backward();
  void adopt(std::size_t unit, const torch::Tensor& mean);
  void reset();
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;

  std::vector<FlatUnit>& units_;
  UnitExchange& exchange_;
  GradientShardsOptions options_;
  double scale_ = 1;  ///< Before the reduction: 1 unless the backend can only sum.
  std::vector<Parameter> parameters_;

  std::vector<torch::Tensor> buffers_;  ///< By unit: all ranks' parts; undefined while not needed.
  std::vector<torch::Tensor> sums_;     ///< By unit: what accumulated here, if of 16 bits.
  std::vector<torch::Tensor> means_;    ///< By unit: where this rank's part arrives.
  std::vector<torch::Tensor> gradients_;  ///< By unit: this rank's part, settled.
  std::vector<torch::Tensor> idle_;       ///< Buffers for what comes next.
  std::vector<std::size_t> in_flight_;    ///< Units, in the order in which they left.

  bool expecting_ = false;
  bool begun_ = false;
  bool accumulating_ = false;
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;  ///< In order_: the next to leave.
  std::vector<std::size_t> missing_;
  ReducerStats stats_;
  std::shared_ptr<GradientShards*> self_;  ///< What callbacks hold weakly.
};

}  // namespace gradwire
