#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"
#include "gradwire/train/zero/flat_unit.h"

namespace gradwire {

/// Memory of sharded gradients: a buffer for each unit that backward writes, and this rank's part
/// of each mean, in which the means of several passes accumulate. In stage 1 all buffers stay
/// allocated, and gradients that are not reduced accumulate in them (16-bit gradients: in separate
/// 32-bit memory). In stages 2 and 3 a buffer is temporary, and reused. Not thread-safe.
class ShardedGradients {
 public:
  /// `units` must outlive this. `keep_all`: stage 1.
  ShardedGradients(std::vector<FlatUnit>& units, int ranks, bool keep_all);
  /// Sets the factor on gradients before the reduction: 1 unless the exchange can only sum.
  void set_scale(double scale) { scale_ = scale; }

  /// All parameters, in the order of the units.
  const std::vector<NamedTensor>& parameters() const { return named_; }
  std::size_t unit_of(std::size_t parameter) const { return parameters_[parameter].unit; }

  /// A pass begins: no gradient is filled.
  void begin_pass();
  /// Moves a parameter's grad() to its place. Returns false if the pass had filled it already: then
  /// it was added.
  bool fill(std::size_t parameter);
  bool is_filled(std::size_t parameter) const { return parameters_[parameter].filled; }
  /// Adds a parameter's grad() to those that are not yet reduced.
  void accumulate(std::size_t parameter);

  /// Completes a unit's buffer: gradients that are not filled are those accumulated before, or
  /// zero.
  torch::Tensor complete(std::size_t unit);
  /// complete(), and the memory for this rank's part of the mean.
  std::pair<torch::Tensor, torch::Tensor> prepare_reduction(std::size_t unit);
  /// The mean is in that memory: adds it to the unit's gradient, and frees the buffer.
  void store_mean(std::size_t unit);

  /// This rank's part of the sum of means; undefined if there was no reduction.
  const torch::Tensor& gradient(std::size_t unit) const { return gradients_[unit]; }
  /// gradient(), made of zeros if it was undefined.
  torch::Tensor make_gradient(std::size_t unit);
  /// Clears all gradients, reduced or accumulated.
  void drop();
  torch::Tensor take(std::size_t unit) { return std::exchange(gradients_[unit], {}); }

  std::size_t gradient_bytes() const;  ///< Kept for the step: model state.
  std::size_t buffer_bytes() const;    ///< In flight, or idle for reuse.

 private:
  struct Parameter {
    torch::Tensor tensor;
    std::size_t unit = 0;
    std::size_t member = 0;
    bool filled = false;
  };

  torch::Tensor place_of(const Parameter& parameter);
  torch::Tensor sum_of(const Parameter& parameter);
  void put(const torch::Tensor& gradient, torch::Tensor& place) const;
  void put_missing(const Parameter& parameter);
  void allocate_buffer(std::size_t unit);
  torch::Tensor new_buffer(const FlatUnit& unit);
  void recycle(torch::Tensor buffer);

  std::vector<FlatUnit>& units_;
  int ranks_;
  bool keep_all_;
  double scale_ = 1;
  std::vector<Parameter> parameters_;
  std::vector<NamedTensor> named_;
  std::vector<torch::Tensor> buffers_;    ///< By unit: all ranks' parts; undefined while unused.
  std::vector<torch::Tensor> sums_;       ///< By unit: 32-bit sums of 16-bit gradients.
  std::vector<torch::Tensor> means_;      ///< By unit: destination of this rank's part.
  std::vector<torch::Tensor> gradients_;  ///< By unit: this rank's part of the means.
  std::vector<torch::Tensor> idle_;       ///< Buffers for reuse.
};

}  // namespace gradwire
