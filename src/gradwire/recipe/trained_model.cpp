#include "gradwire/recipe/trained_model.h"

#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/base/tags.h"
#include "gradwire/host/training_host.h"
#include "gradwire/recipe/click_model.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/checkpoint/save.h"
#include "gradwire/train/data_parallel/accumulate.h"
#include "gradwire/train/optim/amp.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "gradwire/train/pipeline/pipeline_stages.h"
#include "gradwire/train/servers/served.h"
#include "gradwire/train/servers/served_rows.h"
#include "gradwire/train/zero/zero.h"

namespace gradwire::recipe {

WholeModel::WholeModel(const TrainConfig& config, ProcessGroup group, TraceRecorder* trace)
    : config_(config), group_(std::move(group)), trace_(trace) {
  if (config.precision == Precision::fp16) scaler_.emplace(config.loss_scaling);
}

double WholeModel::train_step(const Batch& batch, const LearningRates& rates, bool /*is_last*/) {
  // The last backward of accumulate() takes it.
  const bool stepped = !scaler_ && step_in_backward(rates);
  const auto loss = accumulate(
      *this, batch.inputs, batch.targets, parts_of(batch.inputs.size(0)),
      [](const auto& output, const auto& target) { return torch::nll_loss_nd(output, target); },
      {.precision = config_.precision,
       .loss_scale = scaler_ ? scaler_->scale() : 1,
       .trace = trace_});
  if (!stepped) step(rates, scaler());
  loss_ = loss.item<double>();
  return loss_;
}

/// Accumulation steps: as many as configured, or, for the samples at the end of an epoch, as many
/// as make equal parts that are no larger.
int WholeModel::parts_of(std::int64_t samples) const {
  const std::int64_t largest =
      batch_size_per_replica(config_, group_->getSize()) / config_.accumulation_steps;
  std::int64_t parts = (samples + largest - 1) / largest;
  while (samples % parts != 0) ++parts;
  return static_cast<int>(parts);
}

void WholeModel::save(const std::filesystem::path& path, const std::string& description) {
  const auto& module = whole_module();
  // If servers deal the samples, one worker saves, without the others.
  if (config_.servers.deals() || group_->getRank() == 0) save_model(path, *module, description);
}

std::vector<exchange::Exchange*> WholeModel::feedback() {
  exchange::Exchange* const own = host().feedback();
  return own == nullptr ? std::vector<exchange::Exchange*>() : std::vector{own};
}

namespace {

BeforeStep at_rates(LearningRates rates) {
  return [rates = std::move(rates)](torch::optim::Optimizer& optimizer) {
    set_learning_rates(optimizer, rates);
  };
}

DataParallelOptions parallel_options(const TrainConfig& config, ProcessGroup group,
                                     TraceRecorder* trace) {
  return {.process_group = std::move(group),
          .bucket_cap_mb = config.parallel.bucket_cap_mb,
          .broadcast_buffers = config.parallel.broadcast_buffers,
          .find_unused_parameters = config.parallel.find_unused_parameters,
          .optimizer = optimizer_factory(config.optimizer),
          .overlap = config.parallel.overlap,
          .codec = config.local_steps.enabled ? "none" : config.parallel.codec,
          .codec_min_elements = static_cast<std::size_t>(config.parallel.codec_min_elements),
          .codec_warmup_steps = static_cast<int>(config.parallel.codec_warmup_steps),
          .codec_seed = config.seed,
          .check_finite = config.parallel.check_finite,
          .trace = trace};
}

class ReplicatedTraining : public WholeModel {
 public:
  ReplicatedTraining(const TrainConfig& config, torch::nn::Sequential module, ProcessGroup group,
                     TraceRecorder* trace)
      : WholeModel(config, group, trace),
        config_(config),
        trace_(trace),
        model_(module, parallel_options(config, std::move(group), trace)),
        state_(*module, model_.core()) {
    for (const auto& [name, tensor] : trainable_parameters(*module)) parameters_.push_back(tensor);
  }

  torch::Tensor operator()(const torch::Tensor& inputs) override { return model_(inputs); }
  bool step(const LearningRates& rates, LossScaler* scaler) override {
    if (!unscale(scaler)) {
      model_->zero_grad();
      return false;
    }
    if (config_.gradient_clipping > 0) {
      const TraceScope scope(trace_, TraceKind::optimizer, "gradient norm");
      torch::nn::utils::clip_grad_norm_(parameters_, config_.gradient_clipping);
    }
    model_.step(at_rates(rates));
    return true;
  }
  torch::nn::Sequential& module() override { return model_.module(); }
  torch::nn::Sequential& whole_module() override { return model_.module(); }
  TrainingHost& host() override { return model_.host(); }
  Checkpointable& state() override { return state_; }

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

constexpr const char* kTableName = "features.embedding.weight";

ServedEmbeddingOptions table_options(const TrainConfig& config, std::uint64_t seed) {
  const ServedRowsConfig& rows = config.servers.rows;
  return {.rows = config.model.rows,
          .width = config.model.width,
          .staleness = rows.staleness,
          .seed = seed,
          .optimizer = rows.optimizer,
          .learning_rate = rows.learning_rate,
          .servers = static_cast<int>(config.servers.count)};
}

/// Dense layers are averaged; the rows of the embedding table are on servers.
class ServedRowsTraining final : public ReplicatedTraining {
 public:
  ServedRowsTraining(const TrainConfig& config, torch::nn::Sequential module,
                     const ProcessGroup& group, TraceRecorder* trace)
      : ReplicatedTraining(config, module, group, trace),
        first_rate_(config.optimizer.learning_rate),
        staleness_(config.servers.rows.staleness),
        features_(click_features(module)),
        table_(group, table_options(config, features_.seed())),
        state_(ReplicatedTraining::state(), table_, table_options(config, features_.seed()),
               kTableName, group->getRank()) {
    features_.take_rows([this](const torch::Tensor& ids) { return table_(ids); });
  }
  ~ServedRowsTraining() override {
    features_.take_rows([](const torch::Tensor&) -> torch::Tensor {
      refuse("the servers that had the rows of this model have ended; load its file");
    });
  }

  /// The schedule multiplies the rates of all parameters by the same factor.
  double train_step(const Batch& batch, const LearningRates& rates, bool is_last) override {
    const double loss = ReplicatedTraining::train_step(batch, rates, is_last);
    table_.set_rate(first_rate_ > 0 ? rates.front() / first_rate_ : 1);
    table_.step();
    return loss;
  }
  std::int64_t batches_ahead() const override { return staleness_; }
  void prefetch(const Batch& batch) override {
    // An epoch begins with all steps of the last one: with the same rows in every run.
    if (staleness_ > 0 && table_.free_permits() > staleness_) table_.synchronize();
    table_.prefetch(features_.ids_of(batch.inputs));
  }
  void finish() override {
    ReplicatedTraining::finish();
    table_.synchronize();
  }
  ServedEmbedding* table() override { return &table_; }
  Checkpointable& state() override { return state_; }
  void save(const std::filesystem::path& path, const std::string& description) override {
    if (host().group()->getRank() != 0) return;
    auto tensors = all_parameters(*module());
    tensors.push_back({kTableName, table_.gather()});
    save_model(path, tensors, description);
  }

 private:
  double first_rate_;
  std::int64_t staleness_;
  ClickFeaturesImpl& features_;
  ServedEmbedding table_;
  ServedRowsState state_;
};

std::optional<torch::ScalarType> type_of(Precision precision) {
  if (precision == Precision::fp32) return std::nullopt;
  return precision == Precision::bf16 ? torch::kBFloat16 : torch::kFloat16;
}

class ZeroTraining final : public WholeModel {
 public:
  ZeroTraining(const TrainConfig& config, torch::nn::Sequential module, ProcessGroup group,
               TraceRecorder* trace)
      : WholeModel(config, group, trace),
        model_(std::move(module), zero_options(config, std::move(group), trace)) {}

  torch::Tensor operator()(const torch::Tensor& inputs) override { return model_(inputs); }
  bool step(const LearningRates& rates, LossScaler* scaler) override {
    return model_.step(at_rates(rates), scaler);
  }
  bool step_in_backward(const LearningRates& rates) override {
    if (!model_.core().can_step_in_backward()) return false;
    model_.step_in_backward(at_rates(rates));
    return true;
  }
  torch::nn::Sequential& module() override { return model_.module(); }
  torch::nn::Sequential& whole_module() override {
    model_.consolidate();
    return model_.module();
  }
  TrainingHost& host() override { return model_.host(); }
  Checkpointable& state() override { return model_.core(); }

 private:
  Zero<torch::nn::Sequential> model_;
};

ServedOptions served_options(const TrainConfig& config, ProcessGroup group, TraceRecorder* trace) {
  const ServersConfig& servers = config.servers;
  return {.process_group = std::move(group),
          .servers = {.count = static_cast<int>(servers.count),
                      .mode = servers.mode,
                      .use = servers.use,
                      .grace = servers.grace,
                      .weighs_samples = servers.weighs_samples,
                      .groups = static_cast<int>(servers.groups),
                      .groups_beyond_8 = servers.groups_beyond_8,
                      .units = servers.units,
                      .units_rate = servers.units.empty() ? 1 : servers.scale,
                      .pull_every = static_cast<int>(servers.pull_every),
                      .rate = servers.rate,
                      .mirror_every = servers.mirror_every,
                      .keeps_order = !servers.log.empty()},
          .optimizer = optimizer_factory(config.optimizer),
          .max_grad_norm = config.gradient_clipping,
          .bucket_cap_mb = config.parallel.bucket_cap_mb,
          .overlap = config.parallel.overlap,
          .broadcast_buffers = config.parallel.broadcast_buffers,
          .trace = trace,
          .codec = config.parallel.codec,
          .pull_codec = servers.pull_codec,
          .codec_min_elements = static_cast<std::size_t>(config.parallel.codec_min_elements),
          .codec_warmup_steps = static_cast<int>(config.parallel.codec_warmup_steps),
          .codec_seed = config.seed};
}

class ServedTraining final : public WholeModel {
 public:
  ServedTraining(const TrainConfig& config, torch::nn::Sequential module, ProcessGroup group,
                 TraceRecorder* trace)
      : WholeModel(config, group, trace),
        scale_(config.servers.units.empty() ? config.servers.scale : 1),
        first_rate_(config.optimizer.learning_rate),
        logs_(!config.servers.log.empty()),
        model_(std::move(module), served_options(config, std::move(group), trace)) {}

  torch::Tensor operator()(const torch::Tensor& inputs) override { return model_(inputs); }
  /// The schedule multiplies the rates of all groups by the same factor.
  bool step_in_backward(const LearningRates& rates) override {
    model_.set_rate(scale_ * rates.front() / first_rate_);
    if (logs_) model_.core().note_random_state();
    model_.step_in_backward();
    return true;
  }
  bool step(const LearningRates& /*rates*/, LossScaler* /*scaler*/) override { return true; }
  void finish() override { model_.synchronize(); }
  torch::nn::Sequential& module() override { return model_.module(); }
  torch::nn::Sequential& whole_module() override { return model_.module(); }
  TrainingHost& host() override { return model_.host(); }
  Checkpointable& state() override { return model_.core().state(); }
  ServedModule* served() override { return &model_.core(); }

 private:
  double scale_;
  double first_rate_;  ///< The learning rate of the optimizers on the servers.
  bool logs_;          ///< ServersConfig::log.
  Served<torch::nn::Sequential> model_;
};

LayerGroups layer_groups(const TrainConfig& config, const ParallelMesh& mesh) {
  LayerGroups groups{.plan = config.tensor, .parts = {config.spatial.height, config.spatial.width}};
  if (config.mesh.tensor > 1) groups.tensor = mesh.tensor();
  if (config.mesh.spatial > 1) groups.spatial = mesh.spatial();
  return groups;
}

Pipeline::Options pipeline_options(const TrainConfig& config, const ParallelMesh& mesh,
                                   TraceRecorder* trace) {
  Pipeline::Options options{
      .process_group = mesh.pipeline(),
      .data = {.process_group = mesh.data(),
               .zero_stage = static_cast<int>(config.zero.stage),
               .options = zero_options(config, mesh.data(), trace)},
      .tensor = mesh.tensor(),
      .spatial = mesh.spatial(),
      .micro_batches = static_cast<int>(config.micro_batches()),
      .schedule = config.pipeline.schedule,
      .weights = config.pipeline.weights,
      .costs = config.pipeline.costs,
      .cut = config.pipeline.cut,
      .optimizer = optimizer_factory(config.optimizer),
      .recompute = config.pipeline.recompute,
      .activation_codec = {config.pipeline.forward_codec, config.pipeline.backward_codec},
      .loss = likelihood_sum(config.model, layer_groups(config, mesh)),
      .seed = config.seed};
  if (config.gradient_clipping > 0) options.clip_norm = config.gradient_clipping;
  options.data.options.max_grad_norm = 0;  // The pipeline clips.
  return options;
}

class PipelineTraining final : public TrainedModel {
 public:
  PipelineTraining(const TrainConfig& config, const ParallelMesh& mesh, TraceRecorder* trace)
      : world_(mesh.world()),
        group_(mesh.pipeline()),
        model_(make_layers(config.model, layer_groups(config, mesh)),
               pipeline_options(config, mesh, trace)) {}

  double train_step(const Batch& batch, const LearningRates& rates, bool is_last) override {
    const LossSum loss = model_.train_step(
        batch.inputs, batch.targets,
        {.next_samples = is_last ? -1 : batch.inputs.size(0), .before = at_rates(rates)});
    show(loss);
    return loss.mean();
  }

  /// The loss of the step before the last, if there is one.
  double recent_loss() override { return shown_.value_or(0); }
  void finish() override {
    receive_loss();
    model_.finish();
  }
  torch::Tensor evaluate(const torch::Tensor& inputs) override { return model_.evaluate(inputs); }
  void synchronize_buffers() override {}  // finish() does.
  std::vector<std::shared_ptr<torch::nn::Module>> modules() override {
    std::vector<std::shared_ptr<torch::nn::Module>> all;
    for (const LocalStage& stage : model_.stages()) all.push_back(stage.module);
    return all;
  }
  /// The bytes of the reduced gradients are no measure of what a mesh sends.
  step::StepStats stats() override { return {.exposed = model_.stats().exposed}; }
  Checkpointable& state() override { return model_; }
  std::vector<exchange::Exchange*> feedback() override { return model_.feedback(); }
  void save(const std::filesystem::path& path, const std::string& description) override {
    const auto tensors = gather_model(*world_, model_.pieces(false));
    if (world_->getRank() == 0) save_model(path, tensors, description);
  }

 private:
  /// Sends the loss from the rank that knows it to the first, which shows it one step later, so
  /// that it waits for none but the first.
  void show(const LossSum& loss) {
    const int last = group_->getSize() - 1;
    const bool sends = model_.has_last_stage();
    if (group_->getRank() == 0) {
      if (sends) {
        shown_ = loss.mean();
        return;
      }
      receive_loss();
      message_ = {torch::zeros({1}, torch::kFloat64)};
      transfer_ = group_->recv(message_, last, kLossTag);
      if (!shown_) receive_loss();
    } else if (sends) {
      if (transfer_) transfer_->wait();
      message_ = {torch::full({1}, loss.mean(), torch::kFloat64)};
      transfer_ = group_->send(message_, 0, kLossTag);
    }
  }

  void receive_loss() {
    if (!transfer_) return;
    std::exchange(transfer_, nullptr)->wait();
    shown_ = message_[0].item<double>();
  }

  ProcessGroup world_, group_;
  Pipeline model_;
  std::vector<torch::Tensor> message_;
  c10::intrusive_ptr<c10d::Work> transfer_;
  std::optional<double> shown_;
};

}  // namespace

ZeroOptions zero_options(const TrainConfig& config, ProcessGroup group, TraceRecorder* trace) {
  const auto& zero = config.zero;
  const double element = config.parameters == Precision::fp32 ? 4 : 2;
  return {.process_group = std::move(group),
          .stage = static_cast<int>(zero.stage),
          .optimizer = optimizer_factory(config.optimizer),
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

std::unique_ptr<WholeModel> make_trained_model(const TrainConfig& config,
                                               torch::nn::Sequential module, ProcessGroup group,
                                               TraceRecorder* trace) {
  if (config.servers.rows.enabled) {
    return std::make_unique<ServedRowsTraining>(config, std::move(module), group, trace);
  }
  if (config.servers.enabled && !config.local_steps.enabled) {
    return std::make_unique<ServedTraining>(config, std::move(module), std::move(group), trace);
  }
  if (config.zero.stage == 0) {
    return std::make_unique<ReplicatedTraining>(config, std::move(module), std::move(group), trace);
  }
  return std::make_unique<ZeroTraining>(config, std::move(module), std::move(group), trace);
}

std::unique_ptr<ServedLocalSteps> make_served_local_steps(const TrainConfig& config,
                                                          torch::nn::Module& module,
                                                          ProcessGroup group,
                                                          TraceRecorder* trace) {
  auto local = std::make_unique<ServedLocalSteps>(trainable_parameters(module),
                                                  served_options(config, std::move(group), trace),
                                                  config.local_steps);
  local->served().set_rate(config.servers.scale);
  return local;
}

std::unique_ptr<TrainedModel> make_pipeline_model(const TrainConfig& config,
                                                  const ParallelMesh& mesh, TraceRecorder* trace) {
  return std::make_unique<PipelineTraining>(config, mesh, trace);
}

}  // namespace gradwire::recipe
