#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/overlap.h"
#include "gradwire/step/step_engine.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/activation/await_parameters.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/data_parallel/no_sync.h"
#include "gradwire/train/gradient_hooks.h"
#include "gradwire/train/group.h"
#include "gradwire/train/optim/mixed_precision.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/zero/shard_optimizer.h"
#include "gradwire/train/zero/sharded_gradients.h"
#include "gradwire/train/zero/unit_plan.h"

namespace gradwire {

using step::Overlap;

/// Options of Zero. All must be the same on every rank.
struct ZeroOptions {
  ProcessGroup process_group;  ///< gradwire::init() or any other c10d group. Required.
  /// Sharded over ranks: 1 optimizer states, 2 also gradients, 3 also parameters.
  int stage = 3;
  /// Makes the optimizer of one unit, from its whole parameters; what this rank's shard has of each
  /// parameter group takes their place (ShardOptimizer). SGD, Adam, AdamW, RMSprop, Adagrad, Lars,
  /// Lamb. Required.
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

/// The part of Zero that does not depend on the module's type: the torch side of the step engine in
/// stages 1 to 3. It owns the flat units, their gradients and optimizers, and reports the module's
/// blocks and autograd's gradients to the engine.
class ZeroCore final : public SyncControl,
                       public BlockObserver,
                       public Checkpointable,
                       private step::StepHost,
                       private GradientListener {
 public:
  /// Checks that all ranks have the same parameters and buffers, broadcasts rank 0's values, and
  /// lays the trainable parameters out in units. In stage 3 it frees each unit once this rank's
  /// shard is copied, so memory never exceeds the parameters and one unit. Do not use the module
  /// further if this throws.
  ZeroCore(torch::nn::Module& module, const ZeroOptions& options, bool sequential);
  ~ZeroCore() override;

  void before_forward(const torch::nn::Module& module);
  void after_forward(const std::vector<torch::Tensor>& outputs);
  void before_block(const torch::nn::Module& block) override;
  void after_block(const torch::nn::Module& block,
                   const std::vector<torch::Tensor>& outputs) override;

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
  /// The next backward is of a forward that is not the last one, as in a pipeline, in which several
  /// micro-batches are under way. after_forward() expects that of the forward that has ended.
  void expect_backward();
  bool can_step_in_backward() const;
  void step_in_backward(BeforeStep before);
  void finish();
  void consolidate();
  void synchronize_buffers();

  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;

  int rank() const { return options_.process_group->getRank(); }
  int size() const { return options_.process_group->getSize(); }
  const ProcessGroup& group() const { return options_.process_group; }
  double gradient_norm() const { return gradient_norm_; }
  step::StepStats stats() const;
  /// The exchange whose state (error-feedback residuals) a checkpoint must hold in addition to
  /// pieces(). Null: none. Completes the step. Call between steps.
  exchange::Exchange* feedback();
  ZeroBytes bytes();
  std::size_t units() const { return units_.size(); }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;
  struct UnscaleResult {
    bool finite = true;
    double factor = 1;  ///< Factor on the gradients.
  };

  void plan_units(const torch::nn::Module& module, bool sequential);
  void make_exchange();
  void make_optimizer(FlatUnit& unit);
  void make_engine();
  void poison_parameters();
  bool sharded() const { return options_.stage == 3 && size() > 1; }
  UnitSharing unit_sharing(const torch::nn::Module& module) const;
  std::size_t own_unit_of(const torch::Tensor& parameter) const;
  const std::vector<std::size_t>& units_of(const torch::nn::Module& block);
  UnscaleResult unscale_and_clip(LossScaler* scaler);
  void start_step(BeforeStep before, double factor);

  void prepare_backward(const std::vector<torch::Tensor>& outputs);
  void begin_backward();
  void on_output_gradient(const std::vector<std::size_t>& units, std::size_t position);
  void on_gradient(std::size_t parameter) override;
  void on_end_of_backward() override;
  bool expects_gradients() const override { return prepared_; }
  void fill(std::size_t parameter);
  template <class Hook>
  void hook_outputs(const std::vector<torch::Tensor>& outputs, const Hook& hook);

  Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t unit) override { gradients_->store_mean(unit); }
  bool step(std::size_t unit) override;
  Parameters parameters(std::size_t unit) override;
  void available(std::size_t unit) override { units_[unit].unpoison(); }
  void release(std::size_t unit) override { units_[unit].release(); }

  void require_stepped(const std::vector<torch::Tensor>& outputs) const;
  void require_own_module(const torch::nn::Module& module) const;
  void require_trainable_members() const;
  void require_own_parameters() const;
  ArgumentName name(std::string_view what) const { return {"Zero", what, rank()}; }
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;

  ZeroOptions options_;
  std::vector<NamedTensor> frozen_;  ///< Parameters that require no gradient: replicated.
  std::vector<NamedTensor> buffers_;
  std::vector<FlatUnit> units_;
  std::vector<bool> is_root_;
  std::unordered_map<const torch::nn::Module*, std::vector<std::size_t>> units_of_block_;
  std::unordered_map<const void*, std::size_t> unit_of_;  ///< By TensorImpl of the parameter.
  std::vector<ShardOptimizer> optimizers_;
  std::unique_ptr<exchange::Exchange> exchange_;
  std::unique_ptr<ShardedGradients> gradients_;

  std::recursive_mutex mutex_;  ///< Hooks run on autograd's threads.
  std::shared_ptr<ZeroCore*> self_ = std::make_shared<ZeroCore*>(this);
  BeforeStep before_;
  double factor_ = 1;
  double gradient_norm_ = 0;
  bool training_ = false;  ///< Autograd records the current forward.
  bool prepared_ = false;  ///< A forward in training has ended, and its backward has not.
  bool in_backward_ = false;
  bool accumulating_ = false;  ///< The backward's gradients are not reduced.
  bool is_last_pass_ = true;   ///< The backward completes the mean: no no_sync().
  bool announced_ = false;     ///< step_in_backward() was called for the next last pass.
  Duration buffer_time_{};
  std::unique_ptr<step::StepEngine> engine_;
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace gradwire
