#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/gradient/defaults.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/train/await_parameters.h"
#include "gradwire/train/bucket_steps.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/group.h"
#include "gradwire/train/loss_scaler.h"
#include "gradwire/train/no_sync.h"
#include "gradwire/train/zero/gradient_shards.h"
#include "gradwire/train/zero/parameter_gathers.h"
#include "gradwire/train/zero/shard_optimizer.h"
#include "gradwire/train/zero/unit_plan.h"

namespace gradwire {

/// All must be the same on every rank.
struct ZeroOptions {
  ProcessGroup process_group;  ///< gradwire::init(), or any other c10d group. Required.
  int stage = 3;               ///< What is spread over ranks: 1 the optimiser's states, 2 also the
                               ///< gradients, 3 also the parameters.
  /// Makes the optimiser of one unit's part, which it sees as parameters of one dimension; called
  /// once for each unit or more often. SGD, Adam, AdamW, RMSprop, Adagrad, Lars, Lamb. Required.
  OptimizerFactory optimizer = nullptr;
  /// A folder on a disk: the optimiser's states are kept in files there that have no names, and in
  /// memory as far as the kernel sees fit (memory/mapped_tensor.h). Empty: in memory.
  std::filesystem::path offload_optimizer;
  bool optimizer_is_per_element = false;  ///< Of another optimiser: it treats each by itself.
  /// What parameters and gradients are kept, computed and sent in (bfloat16, float16); the
  /// optimiser then steps a copy of this rank's part in the parameters' own type. Nothing: that.
  std::optional<torch::ScalarType> parameters;
  /// How gradients travel to the ranks that step with them: "none", "int8", "top_k:0.01", ...
  /// (coded_shard_exchange.h). Others than "none" need gradwire's own groups and gradients in
  /// float32, and codecs with error feedback keep on each rank as much as all gradients take.
  std::string codec = "none";
  std::size_t codec_min_elements = kCodecMinElements;  ///< Smaller units travel as they are.
  int codec_warmup_steps = 0;  ///< AveragerOptions::warmup_steps: passes that are reduced.
  std::uint64_t codec_seed = 1;
  double max_grad_norm = 0;  ///< Gradients are scaled down to this norm (of all together); 0: not.
  /// Of a unit in stages 1 and 2, as DataParallel's of a bucket.
  double bucket_cap_mb = kBucketMegabytes;
  Overlap overlap = Overlap::full;
  bool forward_awaits = false;    ///< As DataParallel's.
  bool broadcast_buffers = true;  ///< As DataParallel's.
  /// Stage 3: modules that are blocks beside a Sequential's children and those declared Block.
  std::vector<std::shared_ptr<torch::nn::Module>> blocks;
  /// Stage 3: parameters of smaller blocks are not dropped between forward and backward.
  std::int64_t least_block_elements = 10'000;
  /// Stage 3: so many elements are fetched ahead of the block that runs; the next unit, at least.
  std::int64_t prefetch_elements = 1'000'000;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  TraceRecorder* trace = nullptr;  ///< Gets what travels when, and optimisers; must outlive this.
};

/// What a rank holds at this moment.
struct ZeroBytes {
  std::size_t parameters = 0;  ///< At rest: what is gathered for a while is in `buffers`.
  std::size_t gradients = 0;
  std::size_t optimizer = 0;  ///< States, and the master copy.
  std::size_t buffers = 0;
};

/// What Zero does that does not depend on the module's type.
class ZeroCore final : public Synchronising, public BlockObserver, public Checkpointable {
 public:
  /// Checks that all ranks have the same parameters and buffers, gives them rank 0's values, and
  /// lays the trainable parameters out in units. In stage 3 it drops each as soon as this rank's
  /// part of it is there, so that there are never more than the parameters and one unit: do not go
  /// on with the module if this throws.
  ZeroCore(torch::nn::Module& module, const ZeroOptions& options, bool sequential);
  ~ZeroCore() override;

  void before_forward(const torch::nn::Module& module);
  void after_forward(const std::vector<torch::Tensor>& outputs);
  void before_block(const torch::nn::Module& block) override;
  void after_block(const torch::nn::Module& block,
                   const std::vector<torch::Tensor>& outputs) override;

  bool step(BeforeStep before, LossScaler* scaler);
  void finish();
  void consolidate();
  void synchronise_buffers();

  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;

  int rank() const { return options_.process_group->getRank(); }
  int size() const { return options_.process_group->getSize(); }
  const ProcessGroup& group() const { return options_.process_group; }
  double gradient_norm() const { return gradient_norm_; }
  ReducerStats stats() const;
  /// Whose state a checkpoint must hold beside pieces(): what a codec has lost. Null: nothing.
  /// Completes the step. Between steps.
  Averager* feedback();
  ZeroBytes bytes();
  std::size_t units() const { return units_.size(); }

 private:
  struct Judgement {
    bool finite = true;
    double factor = 1;  ///< What gradients are to be multiplied with.
  };

  void plan_units(const torch::nn::Module& module, bool sequential);
  std::unique_ptr<UnitExchange> make_exchange() const;
  void make_optimizer(FlatUnit& unit);
  bool sharded() const { return options_.stage == 3 && size() > 1; }
  const std::vector<std::size_t>& units_of(const torch::nn::Module& block);
  void use_in_forward(const std::vector<std::size_t>& units);
  void expect_after(std::size_t position);
  void on_output_gradient(const std::vector<std::size_t>& units, std::size_t position);
  void on_complete(std::size_t unit);
  void on_backward_over();
  void require_roots();
  void release_all();
  void require_stepped(const std::vector<torch::Tensor>& outputs) const;
  void require_own_module(const torch::nn::Module& module) const;
  void require_own_parameters() const;
  [[noreturn]] void fail(const std::string& message) const;
  std::vector<std::size_t> reduction_order() const;
  Judgement judge(LossScaler* scaler);
  void make_ready(std::size_t unit);
  void step_all();
  template <class Hook>
  void hook_outputs(const std::vector<torch::Tensor>& outputs, const Hook& hook);

  ZeroOptions options_;
  std::vector<NamedTensor> frozen_;  ///< Parameters that need no gradient: whole on every rank.
  std::vector<NamedTensor> buffers_;
  std::vector<FlatUnit> units_;
  std::vector<bool> is_root_;
  std::unordered_map<const torch::nn::Module*, std::vector<std::size_t>> of_block_;
  std::unordered_map<const void*, std::size_t> unit_of_;  ///< By TensorImpl of the parameter.
  std::vector<ShardOptimizer> optimizers_;
  std::unique_ptr<UnitExchange> exchange_;
  std::unique_ptr<GradientShards> gradients_;
  std::unique_ptr<ParameterGathers> gathers_;

  std::recursive_mutex mutex_;  ///< Hooks run on autograd's threads.
  std::shared_ptr<ZeroCore*> self_ = std::make_shared<ZeroCore*>(this);
  std::vector<bool> to_step_;  ///< By unit.
  BeforeStep before_;
  double factor_ = 1;
  double gradient_norm_ = 0;

  bool training_ = false;  ///< The forward under way is recorded by autograd.
  bool in_forward_ = false;
  bool in_backward_ = false;
  bool consolidated_ = false;
  std::vector<std::size_t> used_;       ///< Units in the order of this forward.
  std::vector<std::size_t> used_last_;  ///< Of the last one: what is likely to come.
  std::vector<bool> complete_;          ///< By unit: backward is done with it.
  Duration buffer_time_{};
};

}  // namespace gradwire
