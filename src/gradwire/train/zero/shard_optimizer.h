#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/bucket_steps.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/zero/flat_unit.h"

namespace gradwire {

/// Sums values over ranks, on every rank: collective.
using SumOverRanks = std::function<std::vector<double>(std::vector<double>)>;

/// The optimiser of one rank's part of a unit. Such that treat each element by itself see the part
/// as one parameter of one dimension; Lars and Lamb see the parts of tensors that lie in it, and
/// take the norms over ranks.
class ShardOptimizer {
 public:
  /// Throws Exception(invalid_argument), which names the optimiser, for one that looks at more than
  /// an element at a time (LBFGS), or that is not known: unless `per_element` says that it does
  /// not. `unit` must outlive this.
  ShardOptimizer(FlatUnit& unit, const OptimizerFactory& factory, bool per_element,
                 const SumOverRanks& sum);

  /// From the next step on, or from states(true), its states (and the master copy) are in files in
  /// this folder (memory/mapped_tensor.h); empty: in memory.
  void offload(std::filesystem::path folder) { folder_ = std::move(folder); }

  /// Whether step() is collective: all ranks must step the same units in the same order.
  bool sums_over_ranks() const { return spread_; }

  /// One step with scale * gradient, this rank's part of the gradient of the unit (which may be
  /// changed). `before` may be null.
  void step(torch::Tensor gradient, double scale, const BeforeStep& before);

  /// The rank's states of the unit's parameters, as Checkpointable has them. If they are made, and
  /// belong in files, they go there at once: what is loaded into them does not need memory.
  std::vector<TensorPiece> states(bool make);

  /// Bytes of the states that have an element for each of the parameters'.
  std::size_t state_bytes();

  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  /// What the optimiser knows as one parameter.
  struct Parameter {
    torch::Tensor tensor;
    std::int64_t offset = 0;  ///< In the shard.
  };

  void make_whole(const OptimizerFactory& factory);
  void make_by_tensors(const OptimizerFactory& factory, const SumOverRanks& sum);
  void move_to_files();
  void append_states(const Parameter& parameter, std::vector<TensorPiece>& found);

  FlatUnit& unit_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  bool spread_ = false;
  std::filesystem::path folder_;  ///< Where the states are to go; empty: they may stay.
};

}  // namespace gradwire
