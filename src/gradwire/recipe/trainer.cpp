#include "gradwire/recipe/trainer.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/cpu.h"
#include "gradwire/base/random.h"
#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/host/group.h"
#include "gradwire/host/training_host.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/recipe/batch_stream.h"
#include "gradwire/recipe/evaluate.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/recipe/run_memory.h"
#include "gradwire/recipe/run_recorder.h"
#include "gradwire/recipe/servers_advice.h"
#include "gradwire/recipe/stop_request.h"
#include "gradwire/topology/machine.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/position.h"
#include "gradwire/train/local_sgd/local_sgd.h"

namespace gradwire::recipe {

namespace {

/// Weights depend on the seed only; later random numbers (dropout) differ between ranks.
torch::nn::Sequential seeded_model(const TrainConfig& config, int rank) {
  // libtorch has one generator per process, in which ranks may be threads.
  static std::mutex generator;
  const std::lock_guard lock(generator);
  check_groups(config);
  torch::manual_seed(config.seed);
  const MemoryScope memory(MemoryCategory::parameters);
  auto model = make_model(config.model);
  torch::manual_seed(mixed_seed({config.seed, static_cast<std::uint64_t>(rank)}));
  return model;
}

std::unique_ptr<TrainedModel> seeded_pipeline(const TrainConfig& config, const ParallelMesh& mesh,
                                              TraceRecorder* trace) {
  check_groups(config);
  torch::manual_seed(config.seed);
  const MemoryScope memory(MemoryCategory::parameters);
  return make_pipeline_model(config, mesh, trace);
}

/// Ranks of one replica have the same batches.
Sampler training_sampler(const TrainConfig& config, std::int64_t samples,
                         const ParallelMesh& mesh) {
  return Sampler({.samples = samples,
                  .batch_size = batch_size_per_replica(config, mesh.world()->getSize()),
                  .rank = mesh.data()->getRank(),
                  .world_size = mesh.data()->getSize(),
                  .seed = config.seed,
                  .uneven = config.data.uneven});
}

/// JSON description for checkpoints: the configuration's model, at least its name.
std::string model_description(const TrainConfig& config) {
  auto model = nlohmann::json::parse(config.model_text);
  model["name"] = config.model.name;
  return model.dump();
}

/// Parameters are their mean over ranks while this exists. Construction is collective.
class MeanParameters {
 public:
  MeanParameters(c10d::ProcessGroup& group, std::vector<torch::Tensor> parameters)
      : parameters_(std::move(parameters)) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : parameters_) {
      own_.push_back(parameter.clone());
      std::vector<torch::Tensor> sum{parameter.detach()};
      group.allreduce(sum)->wait();
      parameter.div_(group.getSize());
    }
  }
  MeanParameters(const MeanParameters&) = delete;
  ~MeanParameters() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < own_.size(); ++i) parameters_[i].copy_(own_[i]);
  }

 private:
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> own_;
};

/// One run. Methods are in the order of their calls.
class Trainer {
 public:
  Trainer(const TrainConfig& config, const TrainerContext& context)
      : config_(config),
        context_(context),
        group_(*context.group),
        communicator_(communicator_of(group_)),
        mesh_(context.group, config.mesh),
        data_(load_data(config.data, Split::train)),
        sampler_(training_sampler(config, data_.size, mesh_)),
        model_(make_model_of_run()),
        labels_(parameters_of(model_->modules())),
        stop_(context.group, *context.clock, StopSignals::received) {
    if (config.local_steps.enabled) start_local_steps();
    if (!config.resume.empty()) resume();
    if (context.stops_on_signals && config.checkpoint_every > 0) signals_.emplace();
  }

  TrainingResult run() {
    print_advice();
    const auto test = load_data(config_.data, Split::test);
    const auto epochs_done = done_ / sampler_.batches();
    for (auto epoch = epochs_done; epoch < config_.epochs; ++epoch) {
      run_epoch(epoch);
      if (epoch + 1 < config_.epochs && is_evaluated_after(done_)) evaluate_after(epoch, test);
    }
    signals_.reset();  // They end the evaluation at once.
    model_->finish();
    meter_.update_sent(sent());
    measure_staleness();
    if (local_) local_->synchronize();
    measure_memory();
    if (local_ || saved_step_ != done_) save();
    if (context_.progress != nullptr) context_.progress->end_line();
    model_->synchronize_buffers();
    auto summary = summarize(evaluate_on(test));
    record_test(summary);
    summary.checkpoint = write_checkpoint();
    // No rank may leave while another is still in the last collective, or before the model is
    // saved.
    group_.barrier()->wait();
    return {whole_ ? whole_->module() : torch::nn::Sequential(nullptr), summary,
            run_record(summary)};
  }

 private:
  Time now() const { return context_.clock->now(); }
  double sent() const {
    if (!communicator_) return -1;
    return static_cast<double>(communicator_->payload_bytes_sent() + model_->other_bytes_sent());
  }
  step::StepStats stats() const { return local_ ? local_->stats() : model_->stats(); }
  std::int64_t total_steps() const { return config_.epochs * sampler_.batches(); }

  void print_advice() {
    if (context_.progress == nullptr) return;
    for (const std::string& line : advice_on_servers(config_, group_.getSize())) {
      context_.progress->print(line);
    }
  }

  std::unique_ptr<TrainedModel> make_model_of_run() {
    if (config_.uses_pipeline()) return seeded_pipeline(config_, mesh_, context_.trace);
    auto whole = make_trained_model(config_, seeded_model(config_, group_.getRank()),
                                    context_.group, context_.trace);
    whole_ = whole.get();
    return whole;
  }

  static std::vector<torch::Tensor> parameters_of(
      const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
    std::vector<torch::Tensor> all;
    for (const auto& module : modules) {
      for (const torch::Tensor& parameter : module->parameters()) all.push_back(parameter);
    }
    return all;
  }

  /// Trains with local steps: averages parameters every H steps instead of gradients at each step.
  void start_local_steps() {
    no_sync_.emplace(whole_->host());
    local_ = std::make_unique<LocalSgd>(
        trainable_parameters(*whole_->module()), context_.group,
        LocalSgdOptions{
            .steps = config_.local_steps, .seed = config_.seed, .trace = context_.trace});
  }

  void run_epoch(std::int64_t epoch) {
    for (const auto& module : model_->modules()) module->train();
    const auto first = done_ % sampler_.batches();
    recorder_.begin_epoch(now());
    BatchStream batches(data_, sampler_, epoch, static_cast<std::size_t>(config_.data.prefetch),
                        first);
    for (auto step = first; step < sampler_.batches();) {
      TraceStep scope(context_.trace, done_);
      const double sent_before = sent();
      meter_.begin(now(), stats(), sent_before);
      const auto batch = next_batch(batches);
      const double loss = run_step(batch);
      meter_.end(now(), stats(), sent());
      recorder_.step(done_ - 1, loss, learning_rate_, meter_.last());
      if (communicator_) scope.set_bytes(static_cast<std::uint64_t>(sent() - sent_before));
      update_progress(epoch, ++step, model_->recent_loss());
      if (config_.checkpoint_every > 0 && done_ % config_.checkpoint_every == 0) save();
      stop_if_asked();
    }
    recorder_.end_epoch(now(), first == 0);
  }

  bool is_evaluated_after(std::int64_t steps) const {
    const auto every = config_.evaluate_every * sampler_.batches();
    return every > 0 && steps % every == 0;
  }

  /// Training goes on as it would have without this.
  void evaluate_after(std::int64_t epoch, const DataSet& test) {
    model_->finish();
    const double sent_before = sent();
    std::optional<MeanParameters> mean;  // With local steps, the ranks have different models.
    if (local_) mean.emplace(group_, whole_->module()->parameters());
    const Evaluation result = evaluate_on(test);
    mean.reset();
    meter_.exclude_sent(sent() - sent_before);
    const report::TrainingSummary tested{.test_accuracy = result.accuracy,
                                         .test_loss = result.loss,
                                         .test_images = result.images,
                                         .characters_per_sample = characters_per_sample()};
    record_test(tested);
    if (context_.progress == nullptr) return;
    context_.progress->print(fmt::format("epoch {}/{}  test accuracy {}", epoch + 1, config_.epochs,
                                         report::test_text(tested)));
  }

  void record_test(const report::TrainingSummary& tested) {
    recorder_.test({.steps = done_, .loss = tested.test_loss, .accuracy = tested.test_accuracy});
  }

  void stop_if_asked() {
    if (!signals_ || done_ == total_steps()) return;
    const int signal = stop_.after_step();
    if (signal == 0) return;
    if (saved_step_ != done_) save();
    if (context_.progress != nullptr) context_.progress->end_line();
    group_.barrier()->wait();
    throw Stopped(signal, done_, checkpoint_folder());
  }

  Batch next_batch(BatchStream& batches) {
    const TraceScope scope(context_.trace, TraceKind::data);
    auto batch = batches.next();
    meter_.on_data(now());
    return std::move(*batch);
  }

  double run_step(const Batch& batch) {
    const auto rates = learning_rates(
        config_.optimizer, config_.batch_size,
        learning_rate_factor(config_.schedule, done_, total_steps(), sampler_.batches()));
    learning_rate_ = rates.front();
    const bool is_last = done_ + 1 == total_steps() || is_evaluated_after(done_ + 1);
    const double loss = model_->train_step(batch, rates, is_last);
    if (local_) step_local_sgd();
    ++done_;
    return loss;
  }

  void step_local_sgd() {
    const TraceScope scope(context_.trace, TraceKind::optimizer, "local steps");
    local_->step();
  }

  void resume() {
    const bool newest = config_.resume == "auto";
    if (newest && !any_checkpoint(group_, checkpoint_folder())) return;
    const auto path = newest ? checkpoint_folder() : std::filesystem::path(config_.resume);
    const auto from = load_checkpoint(path, run_state());
    const auto position = resumed_position(from.position, run_position());
    done_ = position.steps;
    if (from.path.parent_path() == checkpoint_folder()) saved_step_ = done_;
    if (context_.progress == nullptr) return;
    context_.progress->print(from.summary);
    if (!position.remark.empty()) context_.progress->print(position.remark);
  }

  /// Writes a checkpoint to resume from, if enabled.
  void save() {
    if (config_.checkpoint_every == 0) return;
    const TraceScope scope(context_.trace, TraceKind::other, "checkpoint");
    const bootstrap::SavingNote note;  // The launcher must not end this rank meanwhile.
    save_checkpoint(run_state(), done_,
                    {.folder = checkpoint_folder(), .keep = config_.checkpoint_keep});
    saved_step_ = done_;
    const auto record = run_record(summarize({}));
    if (context_.on_saved && group_.getRank() == 0) context_.on_saved(record);
  }

  RunState run_state() {
    return {.group = context_.group,
            .model = model_->state(),
            .feedback = model_->feedback(),
            .scaler = model_->scaler(),
            .local = local_.get(),
            .mesh = mesh_.describe() + (config_.uses_pipeline() ? ", in stages" : ""),
            .description = model_description(config_),
            .position = position_text(run_position())};
  }

  RunPosition run_position() const {
    return {.steps = done_,
            .batches = sampler_.batches(),
            .batch_size = config_.batch_size,
            .seed = config_.seed};
  }

  void update_progress(std::int64_t epoch, std::int64_t step, double loss) {
    constexpr double kMemory = 0.95;  // Decay of the displayed mean over about 20 steps.
    smooth_loss_ = meter_.steps() == 1 ? loss : kMemory * smooth_loss_ + (1 - kMemory) * loss;
    if (context_.progress == nullptr) return;
    context_.progress->update({.epoch = static_cast<int>(epoch + 1),
                               .epochs = static_cast<int>(config_.epochs),
                               .step = step,
                               .steps = sampler_.batches(),
                               .loss = smooth_loss_,
                               .images_per_second = images_per_second(),
                               .characters_per_sample = characters_per_sample(),
                               .communication_share = meter_.communication_share(),
                               .left = meter_.time_of(total_steps() - done_)},
                              now());
  }

  std::int64_t characters_per_sample() const {
    return config_.data.name == "text" ? config_.data.context : 0;
  }

  double images_per_second() const {
    const double seconds = std::chrono::duration<double>(meter_.total()).count();
    return seconds > 0 ? static_cast<double>(meter_.steps() * config_.batch_size) / seconds : 0;
  }

  /// Evaluates in batches of one rank's samples per training pass.
  Evaluation evaluate_on(const DataSet& test) {
    if (context_.trace != nullptr) context_.trace->begin_step(-1);  // No step.
    const auto forward = [this](const torch::Tensor& inputs) { return model_->evaluate(inputs); };
    const auto batch =
        batch_size_per_replica(config_, group_.getSize()) / config_.accumulation_steps;
    return evaluate(model_->modules(), forward, test, batch,
                    {group_, *mesh_.data(), mesh_.ranks_alike()}, config_.parameters);
  }

  report::TrainingSummary summarize(const Evaluation& test) {
    const double ranks = group_.getSize();
    const auto sums = sum_over_ranks(
        group_, {meter_.compute_seconds(), meter_.exposed_seconds(), meter_.sent_bytes(),
                 images_per_second(), std::chrono::duration<double>(meter_.total()).count(),
                 meter_.data_seconds()});
    return {.ranks = group_.getSize(),
            .steps = meter_.steps(),
            .test_accuracy = test.accuracy,
            .test_loss = test.loss,
            .test_images = test.images,
            .images_per_second = sums[3] / ranks,
            .characters_per_sample = characters_per_sample(),
            .training = std::chrono::duration_cast<Duration>(
                std::chrono::duration<double>(sums[4] / ranks)),
            .compute_seconds = sums[0] / ranks,
            .exposed_seconds = sums[1] / ranks,
            .data_seconds = sums[5] / ranks,
            .gradient_bytes = meter_.gradient_bytes(),
            .sent_bytes = sums[2] / ranks,
            .codec = codec_text(),
            .staleness = staleness_,
            .memory = memory_};
  }

  /// Describes how gradients or differences are encoded; empty without a codec.
  std::string codec_text() {
    if (local_) return config_.local_steps.codec == "none" ? "" : local_->describe();
    if (config_.parallel.codec == "none") return "";
    const auto exchanges = model_->feedback();
    return exchanges.empty() ? "" : exchanges.front()->describe();
  }

  /// Record of the run, with losses of whole batches and this rank's memory.
  report::RunRecord run_record(const report::TrainingSummary& summary) {
    auto record = recorder_.record(config_, summary);
    std::vector<double> losses;
    for (const auto& step : record.steps) losses.push_back(step.loss);
    losses = sum_over_ranks(group_, std::move(losses));
    for (std::size_t i = 0; i < losses.size(); ++i) {
      record.steps[i].loss = losses[i] / (mesh_.data()->getSize() * mesh_.ranks_alike());
    }
    record.peak_rank_bytes = summary.memory.bytes;
    constexpr std::size_t kSamples = 2000;
    record.memory = {.samples = thinned(memory_timeline_.samples, kSamples),
                     .peak_bytes = memory_timeline_.peak_bytes};
    return record;
  }

  void measure_staleness() {
    const auto report = model_->server_report();
    if (!report) return;
    const servers::Staleness all = report->staleness();
    const auto updates = static_cast<double>(all.count()),
               late = static_cast<double>(report->late());
    const double served = std::chrono::duration<double>(report->elapsed).count();
    const double busy = std::chrono::duration<double>(report->busy).count();
    staleness_ = {.mean = all.mean(),
                  .p50 = all.quantile(0.5),
                  .p99 = all.quantile(0.99),
                  .max = all.max(),
                  .rate = report->mean_factor,
                  .late = updates + late > 0 ? late / (updates + late) : 0,
                  .busy = served > 0 ? busy / served / report->servers : 0};
  }

  /// Measures the memory of training, without the last evaluation.
  void measure_memory() {
    memory_ = max_peak(group_, context_.memory);
    if (context_.memory != nullptr) {
      memory_timeline_ = context_.memory->ledger().timeline();
    }
  }

  std::filesystem::path checkpoint_folder() const {
    return (context_.output / config_.checkpoint_folder).lexically_normal();
  }
  std::filesystem::path checkpoint_path() const { return context_.output / config_.checkpoint; }

  std::string write_checkpoint() {
    if (config_.checkpoint.empty()) return "";
    model_->save(checkpoint_path(), model_description(config_));
    return checkpoint_path().string();
  }

  const TrainConfig& config_;
  const TrainerContext& context_;
  c10d::ProcessGroup& group_;
  std::shared_ptr<Communicator> communicator_;
  ParallelMesh mesh_;
  DataSet data_;
  Sampler sampler_;
  WholeModel* whole_ = nullptr;  ///< The model, unless it is a pipeline.
  std::unique_ptr<TrainedModel> model_;
  ParameterLabels labels_;
  std::optional<NoSync> no_sync_;    ///< Present with local steps: gradients stay local.
  std::unique_ptr<LocalSgd> local_;  ///< Present with local steps.
  std::optional<StopSignals> signals_;
  StopAgreement stop_;
  StepMeter meter_;
  RunRecorder recorder_;
  report::MemoryPeak memory_;
  std::optional<report::StalenessSummary> staleness_;  ///< With servers.
  MemoryTimeline memory_timeline_;
  std::int64_t done_ = 0;         ///< Steps done, including those before a resumed run started.
  std::int64_t saved_step_ = -1;  ///< Step after which the last checkpoint was written.
  double learning_rate_ = 0;      ///< Rate of the last step, of the first parameter group.
  double smooth_loss_ = 0;
};

}  // namespace

TrainingResult train(const TrainConfig& config, const TrainerContext& context) {
  return Trainer(config, context).run();
}

void serve(const TrainConfig& config, const ProcessGroup& group) {
  make_trained_model(config, seeded_model(config, 0), group, nullptr);
  throw Exception(ErrorKind::invalid_argument, "this rank was not started as a server");
}

int ranks_sharing_cores(c10d::ProcessGroup& group, int local_ranks) {
  if (usable_cores() < topology::machine_cores()) return local_ranks;
  const auto kernels = gather_texts(group, topology::kernel_of(topology::machine_identity()));
  const std::string& own = kernels[static_cast<std::size_t>(group.getRank())];
  return own.empty() ? local_ranks : static_cast<int>(std::ranges::count(kernels, own));
}

int threads_per_rank(int cores, int local_ranks) {
  return std::max(1, cores / local_ranks);
}

}  // namespace gradwire::recipe
