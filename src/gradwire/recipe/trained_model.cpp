#include "gradwire/recipe/trained_model.h"

#include <utility>

#include "gradwire/recipe/optimizers.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/optim/amp.h"
#include "gradwire/train/zero/zero.h"

namespace gradwire::recipe {
namespace {

OptimizerFactory factory_of(const TrainConfig& config) {
  return [&config](std::vector<torch::Tensor> parameters) {
    return make_optimizer(config.optimizer, std::move(parameters));
  };
}

BeforeStep at_rate(double rate) {
  return [rate](torch::optim::Optimizer& optimizer) { set_learning_rate(optimizer, rate); };
}

DataParallelOptions parallel_options(const TrainConfig& config, ProcessGroup group,
                                     TraceRecorder* trace) {
  return {.process_group = std::move(group),
          .bucket_cap_mb = config.parallel.bucket_cap_mb,
          .broadcast_buffers = config.parallel.broadcast_buffers,
          .find_unused_parameters = config.parallel.find_unused_parameters,
          .optimizer = factory_of(config),
          .overlap = config.parallel.overlap,
          .codec = config.local_steps.enabled ? "none" : config.parallel.codec,
          .codec_min_elements = static_cast<std::size_t>(config.parallel.codec_min_elements),
          .codec_warmup_steps = static_cast<int>(config.parallel.codec_warmup_steps),
          .codec_seed = config.seed,
          .check_finite = config.parallel.check_finite,
          .trace = trace};
}

class ReplicatedTraining final : public TrainedModel {
 public:
  ReplicatedTraining(const TrainConfig& config, torch::nn::Sequential module, ProcessGroup group,
                     TraceRecorder* trace)
      : config_(config),
        trace_(trace),
        model_(module, parallel_options(config, std::move(group), trace)),
        state_(*module, model_.core()) {
    for (const auto& [name, tensor] : trainable_parameters(*module)) parameters_.push_back(tensor);
  }

  torch::Tensor operator()(const torch::Tensor& inputs) override { return model_(inputs); }
  bool step(double learning_rate, LossScaler* scaler) override {
    if (!unscale(scaler)) {
      model_->zero_grad();
      return false;
    }
    if (config_.gradient_clipping > 0) {
      const TraceScope scope(trace_, TraceKind::optimizer, "gradient norm");
      torch::nn::utils::clip_grad_norm_(parameters_, config_.gradient_clipping);
    }
    model_.step(at_rate(learning_rate));
    return true;
  }
  void finish() override { model_.finish(); }
  torch::nn::Sequential& module() override { return model_.module(); }
  torch::nn::Sequential& whole_module() override { return model_.module(); }
  void synchronize_buffers() override { model_.synchronize_buffers(); }
  SyncControl& core() override { return model_.core(); }
  step::StepStats stats() const override { return model_.stats(); }
  Checkpointable& state() override { return state_; }
  exchange::Exchange* feedback() override {
    return model_.world_size() > 1 ? &model_.core().replicated().exchange() : nullptr;
  }

 private:
  /// Returns true if the step may be taken.
  bool unscale(LossScaler* scaler) {
    if (scaler == nullptr) return true;
    const TraceScope scope(trace_, TraceKind::optimizer);
    const bool finite = unscale_gradients(parameters_, scaler->scale());
    scaler->update(finite);
    return finite;
  }

  const TrainConfig& config_;
  TraceRecorder* trace_;
  std::vector<torch::Tensor> parameters_;
  DataParallel<torch::nn::Sequential> model_;
  ReplicatedModel state_;
};

std::optional<torch::ScalarType> type_of(Precision precision) {
  if (precision == Precision::fp32) return std::nullopt;
  return precision == Precision::bf16 ? torch::kBFloat16 : torch::kFloat16;
}

class ZeroTraining final : public TrainedModel {
 public:
  ZeroTraining(const TrainConfig& config, torch::nn::Sequential module, ProcessGroup group,
               TraceRecorder* trace)
      : model_(std::move(module), zero_options(config, std::move(group), trace)) {}

  torch::Tensor operator()(const torch::Tensor& inputs) override { return model_(inputs); }
  bool step(double learning_rate, LossScaler* scaler) override {
    return model_.step(at_rate(learning_rate), scaler);
  }
  bool step_in_backward(double learning_rate) override {
    if (!model_.core().can_step_in_backward()) return false;
    model_.step_in_backward(at_rate(learning_rate));
    return true;
  }
  void finish() override { model_.finish(); }
  torch::nn::Sequential& module() override { return model_.module(); }
  torch::nn::Sequential& whole_module() override {
    model_.consolidate();
    return model_.module();
  }
  void synchronize_buffers() override { model_.synchronize_buffers(); }
  SyncControl& core() override { return model_.core(); }
  step::StepStats stats() const override { return model_.stats(); }
  Checkpointable& state() override { return model_.core(); }
  exchange::Exchange* feedback() override { return model_.core().feedback(); }

 private:
  Zero<torch::nn::Sequential> model_;
};

}  // namespace

ZeroOptions zero_options(const TrainConfig& config, ProcessGroup group, TraceRecorder* trace) {
  const auto& zero = config.zero;
  const double element = config.parameters == Precision::fp32 ? 4 : 2;
  return {.process_group = std::move(group),
          .stage = static_cast<int>(zero.stage),
          .optimizer = factory_of(config),
          .offload_optimizer = zero.offload_path,
          .parameters = type_of(config.parameters),
          .codec = config.parallel.codec,
          .codec_min_elements = static_cast<std::size_t>(config.parallel.codec_min_elements),
          .codec_warmup_steps = static_cast<int>(config.parallel.codec_warmup_steps),
          .codec_seed = config.seed,
          .max_grad_norm = config.gradient_clipping,
          .bucket_cap_mb = zero.reduce_bucket_size > 0
                               ? element * static_cast<double>(zero.reduce_bucket_size) / (1 << 20)
                               : config.parallel.bucket_cap_mb,
          .overlap = zero.overlap_comm ? config.parallel.overlap : step::Overlap::none,
          .broadcast_buffers = config.parallel.broadcast_buffers,
          .min_block_elements = zero.stage3_param_persistence_threshold,
          .prefetch_elements = zero.stage3_prefetch_bucket_size,
          .trace = trace};
}

std::unique_ptr<TrainedModel> make_trained_model(const TrainConfig& config,
                                                 torch::nn::Sequential module, ProcessGroup group,
                                                 TraceRecorder* trace) {
  if (config.zero.stage == 0) {
    return std::make_unique<ReplicatedTraining>(config, std::move(module), std::move(group), trace);
  }
  return std::make_unique<ZeroTraining>(config, std::move(module), std::move(group), trace);
}

}  // namespace gradwire::recipe
