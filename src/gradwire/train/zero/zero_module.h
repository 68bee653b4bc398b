#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/host/group.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/overlap.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/distributed_module.h"
#include "gradwire/train/optim/mixed_precision.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

using step::Overlap;

class Shards;
class ShardOptimizers;
struct UnitSharing;

/// Options of Zero. All must be the same on every rank.
struct ZeroOptions {
  ProcessGroup process_group;  ///< gradwire::init() or any other c10d group. Required.
  /// Sharded over ranks: 1 optimizer states, 2 also gradients, 3 also parameters.
  int stage = 3;
  /// Makes the optimizer of one unit, from its whole parameters; what this rank's shard has of each
  /// parameter group takes their place (ShardOptimizer). SGD, Adam, AdamW, RMSprop, Adagrad,
  /// RAdam, Yogi, Lars, Lamb, RangerLars. Required.
  OptimizerFactory optimizer = nullptr;
  /// Folder on a disk for the optimizer states: kept in unnamed files, which the kernel caches in
  /// memory (memory/mapped_tensor.h). Empty: in memory.
  std::filesystem::path offload_optimizer;
  bool optimizer_is_per_element = false;  ///< Declares any other optimizer as element-wise.
  /// Type in which parameters and gradients are stored, computed and sent (bfloat16, float16). The
  /// optimizer then steps a copy of this rank's shard in the parameters' original type. Nullopt:
  /// the original type.
  std::optional<torch::ScalarType> parameters;
  /// Gradient codec: "none", "int8", "top_k:0.01", ... (exchange/coded_exchange.h). Other codecs
  /// than "none" require a gradwire group and float32 gradients. Codecs with error feedback keep a
  /// residual as large as all gradients on each rank.
  std::string codec = "none";
  std::size_t codec_min_elements =
      step::kCodecMinElements;  ///< Smaller units are sent uncompressed.
  int codec_warmup_steps = 0;   ///< ExchangeOptions::warmup_steps, in reduced passes.
  std::uint64_t codec_seed = 1;
  bool can_abandon = false;  ///< DataParallelOptions::can_abandon.
  double max_grad_norm = 0;  ///< Clips gradients to this global norm; 0: no clipping.
  /// Maximum unit size in stages 1 and 2, as DataParallel's bucket size.
  double bucket_cap_mb = step::kBucketMegabytes;
  Overlap overlap = Overlap::full;
  bool forward_awaits = false;    ///< DataParallelOptions::forward_awaits.
  bool broadcast_buffers = true;  ///< DataParallelOptions::broadcast_buffers.
  /// Stage 3: modules that are blocks, in addition to a Sequential's children and modules declared
  /// Block.
  std::vector<std::shared_ptr<torch::nn::Module>> blocks;
  /// Parameters that each are a unit of their own. The shard of a rank is then the same range of
  /// such a parameter in every model that has it.
  std::vector<torch::Tensor> own_units;
  /// Stage 3: parameters of blocks with fewer elements stay present between forward and backward.
  std::int64_t min_block_elements = 10'000;
  /// Stage 3: elements to prefetch ahead of the running block; at least the next unit.
  std::int64_t prefetch_elements = 1'000'000;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  TraceRecorder* trace = nullptr;  ///< Records traffic and optimizer steps; must outlive this.
};

/// Current memory of a rank.
struct ZeroBytes {
  std::size_t parameters = 0;  ///< At rest; temporarily gathered parameters are in `buffers`.
  std::size_t gradients = 0;
  std::size_t optimizer = 0;  ///< States and the master copy.
  std::size_t buffers = 0;
};

/// The part of Zero that does not depend on the module's type.
class ZeroModule final : public DistributedModule, public Checkpointable {
 public:
  /// Checks that all ranks have the same parameters and buffers, broadcasts rank 0's values, and
  /// lays the trainable parameters out in units. In stage 3 it frees each unit once this rank's
  /// shard is copied, so memory never exceeds the parameters and one unit. Do not use the module
  /// further if this throws.
  ZeroModule(torch::nn::Module& module, const ZeroOptions& options, bool sequential);
  ~ZeroModule() override;

  bool step(BeforeStep before, LossScaler* scaler);
  /// step() with gradients times `factor`, without clipping.
  void step_scaled(BeforeStep before, double factor);
  /// Waits for the means. Returns the squared norm of all gradients, of all ranks. Collective.
  double squared_norm();
  /// The same of each parameter, by name.
  std::map<std::string, double> squared_norms();
  /// This rank's part of a parameter with a unit of its own (ZeroOptions::own_units), flat and
  /// padded: the gradient, after waiting for its mean, zero if there is none; and the values that
  /// the optimizer steps. The caller may change both until the next step.
  torch::Tensor gradient_shard(const torch::Tensor& parameter);
  torch::Tensor value_shard(const torch::Tensor& parameter);
  bool can_step_in_backward() const;
  void step_in_backward(BeforeStep before);
  void consolidate();

  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;

  double gradient_norm() const { return gradient_norm_; }
  ZeroBytes bytes();
  std::size_t units() const;

 private:
  struct UnscaleResult {
    bool finite = true;
    double factor = 1;  ///< Factor on the gradients.
  };

  void make_units(const torch::nn::Module& module, bool sequential);
  UnitSharing unit_sharing(const torch::nn::Module& module) const;
  std::size_t own_unit_of(const torch::Tensor& parameter) const;
  UnscaleResult unscale_and_clip(LossScaler* scaler);

  void check_before_training() const override;
  void require_trainable_members() const;
  void require_own_parameters() const;

  ZeroOptions options_;
  std::vector<NamedTensor> frozen_;  ///< Parameters that require no gradient: replicated.
  std::unique_ptr<Shards> shards_;
  std::unique_ptr<ShardOptimizers> optimizers_;
  std::unique_ptr<TrainingHost> own_host_;
  double gradient_norm_ = 0;
};

}  // namespace gradwire
