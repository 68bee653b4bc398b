#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/training_errors.h"
#include "gradwire/host/unit_memory.h"
#include "gradwire/train/optim/torch_unit_optimizer.h"
#include "gradwire/train/zero/flat_unit.h"
#include "gradwire/train/zero/shard_optimizer.h"
#include "gradwire/train/zero/sharded_gradients.h"

namespace gradwire {

struct ShardsOptions {
  int stage = 3;  ///< ZeroOptions::stage.
  std::optional<torch::ScalarType> parameters;
  std::size_t codec_min_elements = 0;
  /// Number of servers that have the shards (stage 1): this rank has the whole units and the
  /// gradients, and no shard. 0: the ranks of the group have the shards.
  int servers = 0;
};

/// Memory of sharded training: flat units, of which the r-th part is rank r's, and their gradients.
class Shards final : public UnitMemory {
 public:
  /// `units`: at most as many as add() will be called for.
  Shards(ProcessGroup group, std::string who, const ShardsOptions& options, std::size_t units);
  ~Shards() override;

  /// Adds a unit. In stage 3 its whole parameters stay until release(). `is_root`: as StepUnit's.
  FlatUnit& add(const std::string& name, const std::vector<NamedTensor>& members, bool is_root);
  /// Call after the last add().
  void allocate_gradients();

  const std::vector<NamedTensor>& parameters() const override { return gradients_->parameters(); }
  std::size_t unit_of(std::size_t parameter) const override {
    return gradients_->unit_of(parameter);
  }
  std::vector<step::StepUnit> step_units() const override;
  std::vector<exchange::UnitShape> shapes() const override;
  std::vector<at::Tensor> samples() const override;
  void exchange_by(exchange::Exchange& exchange) override;

  bool takes_gradients() const override { return true; }
  void begin_pass() override { gradients_->begin_pass(); }
  bool fill(std::size_t parameter, bool /*produced*/) override {
    return gradients_->fill(parameter);
  }
  bool is_filled(std::size_t parameter) const override { return gradients_->is_filled(parameter); }
  void accumulate(std::size_t parameter) override { gradients_->accumulate(parameter); }
  void drop_gradients() override { gradients_->drop(); }
  step::StepHost::Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t unit) override {
    if (!on_servers()) gradients_->store_mean(unit);
  }
  step::StepHost::Parameters whole_parameters(std::size_t unit) override;
  void available(std::size_t unit) override { units_[unit].unpoison(); }
  void release(std::size_t unit) override { units_[unit].release(); }
  void poison() override;

  std::vector<FlatUnit>& units() { return units_; }
  const std::vector<FlatUnit>& units() const { return units_; }
  ShardedGradients& gradients() { return *gradients_; }

 private:
  bool on_servers() const { return options_.servers > 0; }
  int parts() const { return on_servers() ? options_.servers : group_->getSize(); }

  ProcessGroup group_;
  TrainingErrors errors_;
  ShardsOptions options_;
  std::vector<FlatUnit> units_;  ///< Never moves: optimizers refer to units.
  std::vector<bool> is_root_;
  std::unique_ptr<ShardedGradients> gradients_;
};

struct ShardOptimizersOptions {
  OptimizerFactory factory;
  bool is_per_element = false;       ///< ZeroOptions::optimizer_is_per_element.
  std::filesystem::path offload_to;  ///< ZeroOptions::offload_optimizer.
};

/// The optimizers of this rank's shards.
class ShardOptimizers final : public TorchUnitOptimizer {
 public:
  /// `shards` must outlive this.
  ShardOptimizers(ProcessGroup group, Shards& shards, ShardOptimizersOptions options);

  /// Makes the optimizer of the next unit. Throws Exception(invalid_argument) as ShardOptimizer.
  void add(FlatUnit& unit);

  bool step(std::size_t unit, double factor) override;
  bool communicates() const override;
  std::vector<torch::optim::Optimizer*> optimizers() override;

  std::vector<TensorPiece> states(bool make);
  std::size_t state_bytes();

 private:
  ProcessGroup group_;
  Shards& shards_;
  ShardOptimizersOptions options_;
  std::vector<ShardOptimizer> optimizers_;
};

}  // namespace gradwire
