#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/zero/flat_unit.h"

namespace gradwire {

/// Sums values over ranks, on every rank. Collective.
using SumOverRanks = std::function<std::vector<double>(std::vector<double>)>;

/// The optimizer of this rank's shard of a unit. The factory makes it for the unit's whole
/// parameters; then what the shard has of each group takes their place. An element-wise optimizer
/// sees 1-D ranges of the shard, as long as its groups allow: one range if it has one group. A
/// LayerwiseOptimizer sees the parts of tensors in the shard, and computes norms over ranks.
class ShardOptimizer {
 public:
  /// Throws Exception(invalid_argument), which names the optimizer, if it is not element-wise
  /// (LBFGS) or unknown; `per_element` asserts that it is element-wise. Also if its groups have
  /// other tensors than the unit's parameters. `unit` must outlive this.
  ShardOptimizer(FlatUnit& unit, const OptimizerFactory& factory, bool per_element,
                 const SumOverRanks& sum);

  /// Keeps the states (and the master copy) in files in this folder (memory/mapped_tensor.h), from
  /// the next step or states(true) on. Empty: in memory.
  void offload(std::filesystem::path folder) { folder_ = std::move(folder); }

  /// Returns true if step() is collective: all ranks must step the same units in the same order.
  bool sums_over_ranks() const { return has_distributed_norms_; }

  /// Steps with scale * gradient, this rank's part of the unit's gradient, which may be
  /// overwritten. `before` may be null.
  void step(torch::Tensor gradient, double scale, const BeforeStep& before);

  /// Returns this rank's optimizer states, as Checkpointable does. New states that belong in files
  /// are created there, so that loading into them needs no memory.
  std::vector<TensorPiece> states(bool make);

  /// Bytes of the states that have one element per parameter element.
  std::size_t state_bytes();

  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  /// A parameter as the optimizer sees it: consecutive elements of the shard.
  struct Parameter {
    torch::Tensor tensor;
    std::int64_t offset = 0;              ///< In the shard.
    std::vector<FlatUnit::Piece> pieces;  ///< The unit's parameters that it is made of.
    std::size_t group = 0;
  };

  void place_in_shard();
  std::unordered_map<const void*, std::size_t> group_of_members() const;
  void set_norms(const SumOverRanks& sum);
  void move_to_files();
  void append_states(const Parameter& parameter, std::vector<TensorPiece>& found);

  FlatUnit& unit_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  bool has_distributed_norms_ = false;
  std::filesystem::path folder_;  ///< Folder that the states are to be moved to; empty: none.
};

}  // namespace gradwire
