#include "gradwire/recipe/trainer.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

#include <fmt/format.h>

#include "gradwire/base/cpu.h"
#include "gradwire/base/random.h"
#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/host/group.h"
#include "gradwire/host/training_host.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/recipe/batch_stream.h"
#include "gradwire/recipe/deal_position.h"
#include "gradwire/recipe/dealt_batches.h"
#include "gradwire/recipe/evaluate.h"
#include "gradwire/recipe/hogwild_run.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/recipe/replay.h"
#include "gradwire/recipe/run_memory.h"
#include "gradwire/recipe/run_recorder.h"
#include "gradwire/recipe/run_staleness.h"
#include "gradwire/recipe/servers_advice.h"
#include "gradwire/recipe/slow_steps.h"
#include "gradwire/recipe/stop_request.h"
#include "gradwire/servers/served_exchange.h"
#include "gradwire/topology/machine.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/position.h"
#include "gradwire/train/local_sgd/local_sgd.h"
#include "gradwire/train/servers/served_local_state.h"

namespace gradwire::recipe {

namespace {

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
        together_(config.servers.deals() ? mesh_.pipeline() : context.group),
        stop_(context.group, *context.clock, StopSignals::received) {
    if (config.local_steps.enabled) start_local_steps();
    if (!config.resume.empty()) resume();
    if (!config.servers.log.empty()) require_equal_threads(group_);
    if (config.servers.deals()) {
      dealt_.emplace(*served(), data_, sampler_, config.epochs, resumed_);
    }
    if (const auto slow = context.slow.find(group_.getRank()); slow != context.slow.end()) {
      slow_.emplace(slow->second,
                    mixed_seed({config.seed, static_cast<std::uint64_t>(slow->first)}), alarm_);
    }
    if (context.stops_on_signals && config.checkpoint_every > 0) signals_.emplace();
  }

  TrainingResult run() {
    print_advice();
    const auto test = load_data(config_.data, Split::test);
    dealt_ ? run_dealt(test) : run_epochs(test);
    signals_.reset();  // They end the evaluation at once.
    model_->finish();
    meter_.update_sent(sent());
    if (local_) local_->synchronize();
    if (outer_) outer_->synchronize();
    measure_memory();
    if (!dealt_ && (local_ || saved_step_ != done_)) save();
    return dealt_ ? conclude_on_first(test) : conclude_together(test);
  }

 private:
  Time now() const { return context_.clock->now(); }
  double sent() const {
    if (!communicator_ || !communicator_->traits().counts_bytes) return -1;
    const std::size_t to_servers = served()          ? served()->payload_bytes_sent()
                                   : model_->table() ? model_->table()->payload_bytes_sent()
                                                     : 0;
    return static_cast<double>(communicator_->payload_bytes_sent() + to_servers);
  }
  /// Null on ranks that do not print.
  report::ProgressPrinter* progress() const {
    return group_.getRank() == first_ ? context_.progress : nullptr;
  }
  step::StepStats stats() const {
    if (outer_) return outer_->stats();
    return local_ ? local_->stats() : model_->stats();
  }
  /// The connection to parameter servers; null without.
  ServedModule* served() const { return outer_ ? &outer_->served() : model_->served(); }
  std::int64_t total_steps() const { return config_.epochs * sampler_.batches(); }

  void print_advice() {
    if (progress() == nullptr) return;
    for (const std::string& line : advice_on_servers(config_, group_.getSize())) {
      progress()->print(line);
    }
  }

  std::unique_ptr<TrainedModel> make_model_of_run() {
    if (config_.uses_pipeline()) return seeded_pipeline(config_, mesh_, context_.trace);
    auto model = seeded_model(config_, group_.getRank());
    model->to(context_.device);
    auto whole = make_trained_model(config_, std::move(model), context_.group, context_.trace);
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
    if (config_.servers.enabled) {
      outer_ = make_served_local_steps(config_, *whole_->module(), context_.group, context_.trace);
      outer_state_.emplace(*outer_, whole_->state());
      return;
    }
    local_ = std::make_unique<LocalSgd>(
        trainable_parameters(*whole_->module()), context_.group,
        LocalSgdOptions{
            .steps = config_.local_steps, .seed = config_.seed, .trace = context_.trace});
  }

  void run_epochs(const DataSet& test) {
    for (auto epoch = done_ / sampler_.batches(); epoch < config_.epochs; ++epoch) {
      run_epoch(epoch);
      if (epoch + 1 < config_.epochs && is_evaluated_after(done_)) evaluate_after(epoch, test);
    }
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
      const double loss = run_metered_step(batch);
      recorder_.step(done_ - 1, loss, learning_rate_, meter_.last());
      if (communicator_) scope.set_bytes(static_cast<std::uint64_t>(sent() - sent_before));
      update_progress(epoch, ++step, model_->recent_loss());
      if (config_.checkpoint_every > 0 && done_ % config_.checkpoint_every == 0) save();
      stop_if_asked();
    }
    recorder_.end_epoch(now(), first == 0);
  }

  /// Returns the number of checkpoints that are due after `samples` applied samples.
  std::int64_t mark_of(std::int64_t samples) const {
    if (config_.checkpoint_every == 0) return 0;
    return samples / config_.batch_size / config_.checkpoint_every;
  }

  /// Trains on the batches that servers deal to this rank. The learning rate and evaluations follow
  /// the samples that all ranks have trained on.
  void run_dealt(const DataSet& test) {
    for (const auto& module : model_->modules()) module->train();
    saved_mark_ = mark_of(dealt_->applied());
    recorder_.begin_epoch(now());
    bool whole = !dealt_->began_within_epoch();
    for (std::int64_t epoch = dealt_->epochs();;) {
      TraceStep scope(context_.trace, meter_.steps());
      const double sent_before = sent();
      meter_.begin(now(), stats(), sent_before);
      const auto batch = take_batch();
      if (!batch) break;
      const double loss = run_metered_step(*batch);
      recorder_.step(meter_.steps() - 1, loss, learning_rate_, meter_.last());
      if (communicator_) scope.set_bytes(static_cast<std::uint64_t>(sent() - sent_before));
      update_progress(epoch, done_ % sampler_.batches() + 1, loss);
      for (; epoch < dealt_->epochs(); ++epoch) {
        recorder_.end_epoch(now(), std::exchange(whole, true));
        evaluate_dealt(epoch, test);
        recorder_.begin_epoch(now());
      }
    }
    meter_.end_idle(now());
    if (meter_.steps() > 0) recorder_.end_epoch(now(), whole);
  }

  /// Returns nullopt when all samples are applied.
  std::optional<Batch> take_batch() {
    const TraceScope scope(context_.trace, TraceKind::data);
    for (;;) {
      if (dealt_->stop() != 0) stop_dealt(dealt_->stop());
      if (mark_of(dealt_->applied()) > saved_mark_) save_dealt();
      auto batch = dealt_->next(signals_ ? StopSignals::received() : 0);
      follow_dealt();
      if (dealt_->ended()) return std::nullopt;
      if (!batch && outer_) outer_->flush();  // There may be batches again when these are applied.
      if (!batch) continue;
      if (outer_) outer_->follow();
      if (outer_) outer_->set_share(dealt_->share());
      meter_.on_data(now());
      return batch;
    }
  }

  void follow_dealt() {
    first_ = dealt_->first();
    samples_ = dealt_->applied_in_this_run();
    done_ = dealt_->applied() / config_.batch_size;
  }

  /// The first worker saves while all wait. They have pushed all their batches.
  void save_dealt() {
    if (outer_) outer_->flush();
    dealt_->meet();
    follow_dealt();
    saved_mark_ = mark_of(dealt_->applied());
    if (group_.getRank() == first_) {
      served()->pull();
      save();
    }
    dealt_->meet();
    meter_.begin(now(), stats(), sent());
  }

  [[noreturn]] void stop_dealt(int signal) {
    save_dealt();
    if (group_.getRank() == first_) save_order();
    if (progress() != nullptr) progress()->end_line();
    served()->leave();
    throw Stopped(signal, done_, checkpoint_folder(), group_.getRank() == first_);
  }

  /// On the first worker, while the others go on.
  void evaluate_dealt(std::int64_t epoch, const DataSet& test) {
    if (epoch + 1 == config_.epochs) return;
    if (config_.evaluate_every == 0 || (epoch + 1) % config_.evaluate_every != 0) return;
    if (outer_) outer_->flush();  // Its difference is to the parameters that are there before.
    served()->finish();           // The members of its group complete the step together.
    if (group_.getRank() != first_) return;
    served()->pull();
    evaluate_after(epoch, test);
  }

  bool is_evaluated_after(std::int64_t steps) const {
    const auto every = config_.evaluate_every * sampler_.batches();
    return every > 0 && steps % every == 0;
  }

  /// Training goes on as it would have without this.
  void evaluate_after(std::int64_t epoch, const DataSet& test) {
    if (!dealt_) model_->finish();
    const double sent_before = sent();
    std::optional<MeanParameters> mean;  // With local steps, the ranks have different models.
    if (local_) mean.emplace(group_, whole_->module()->parameters());
    if (outer_) outer_->swap();
    const Evaluation result = evaluate_on(test);
    if (outer_) outer_->swap();
    mean.reset();
    meter_.exclude_sent(sent() - sent_before);
    const report::TrainingSummary tested{.test_accuracy = result.accuracy,
                                         .test_loss = result.loss,
                                         .test_images = result.images,
                                         .characters_per_sample = characters_per_sample(),
                                         .samples = config_.data.samples()};
    record_test(tested);
    if (progress() == nullptr) return;
    progress()->print(fmt::format("epoch {}/{}  test accuracy {}", epoch + 1, config_.epochs,
                                  report::test_text(tested)));
  }

  void record_test(const report::TrainingSummary& tested) {
    const auto steps = dealt_ ? meter_.steps() : done_;
    recorder_.test({.steps = steps, .loss = tested.test_loss, .accuracy = tested.test_accuracy});
  }

  void stop_if_asked() {
    if (!signals_ || done_ == total_steps()) return;
    const int signal = stop_.after_step();
    if (signal == 0) return;
    if (saved_step_ != done_) save();
    if (progress() != nullptr) progress()->end_line();
    group_.barrier()->wait();
    if (served() != nullptr) served()->leave();
    if (model_->table() != nullptr) model_->table()->leave();
    throw Stopped(signal, done_, checkpoint_folder(), group_.getRank() == first_);
  }

  /// A run that resumes from a checkpoint has none of the batches after it: so none of them is
  /// prefetched before, and all runs have the same bits.
  bool may_prefetch() const {
    const auto ahead = static_cast<std::int64_t>(ahead_.size());
    if (ahead == 0 || ahead > model_->batches_ahead()) return ahead == 0;
    return config_.checkpoint_every == 0 || (done_ + ahead) % config_.checkpoint_every != 0;
  }

  Batch next_batch(BatchStream& batches) {
    const TraceScope scope(context_.trace, TraceKind::data);
    while (may_prefetch()) {
      auto batch = batches.next();
      if (!batch) break;
      model_->prefetch(*batch);
      ahead_.push_back(std::move(*batch));
    }
    Batch batch = std::move(ahead_.front());
    ahead_.pop_front();
    meter_.on_data(now());
    return batch;
  }

  /// Ends the step that the meter has begun.
  double run_metered_step(const Batch& batch) {
    if (slow_) slow_->wait();
    const double loss = run_step(batch);
    meter_.end(now(), stats(), sent());
    if (slow_) slow_->end(meter_.last().compute);
    return loss;
  }

  double run_step(const Batch& batch) {
    const auto rates =
        learning_rates(config_.optimizer, config_.batch_size,
                       learning_rate_factor(config_.schedule, std::min(done_, total_steps() - 1),
                                            total_steps(), sampler_.batches()));
    learning_rate_ = rates.front();
    const bool is_last = done_ + 1 == total_steps() || is_evaluated_after(done_ + 1);
    const double loss = model_->train_step(on_device(batch), rates, is_last);
    if (local_ || outer_) step_locally();
    if (dealt_) return loss;
    ++done_;
    samples_ += config_.batch_size;
    return loss;
  }

  Batch on_device(const Batch& batch) const {
    return {batch.inputs.to(context_.device), batch.targets.to(context_.device), batch.own};
  }

  void step_locally() {
    const TraceScope scope(context_.trace, TraceKind::optimizer, "local steps");
    outer_ ? outer_->step() : local_->step();
  }

  void resume() {
    const bool newest = config_.resume == "auto";
    if (newest && !any_checkpoint(group_, checkpoint_folder())) return;
    const auto path = newest ? checkpoint_folder() : std::filesystem::path(config_.resume);
    const auto from = load_checkpoint(path, run_state(context_.group));
    const auto position = resumed_position(from.position, run_position());
    done_ = position.steps;
    resumed_ = resumed_progress(from.position, run_position(), data_.size, config_.epochs);
    if (from.path.parent_path() == checkpoint_folder()) saved_step_ = done_;
    if (progress() == nullptr) return;
    progress()->print(from.summary);
    if (!position.remark.empty()) progress()->print(position.remark);
  }

  /// Writes a checkpoint to resume from, if enabled.
  void save() {
    if (config_.checkpoint_every == 0) return;
    const TraceScope scope(context_.trace, TraceKind::other, "checkpoint");
    if (outer_) outer_->flush();
    const bootstrap::SavingNote note;  // The launcher must not end this rank meanwhile.
    save_checkpoint(run_state(together_), done_,
                    {.folder = checkpoint_folder(), .keep = config_.checkpoint_keep});
    saved_step_ = done_;
    const auto record = run_record(summarize({}));
    if (context_.on_saved && group_.getRank() == first_) context_.on_saved(record);
  }

  RunState run_state(const ProcessGroup& group) {
    return {.group = group,
            .model = outer_state_ ? *outer_state_ : model_->state(),
            .feedback = feedback(),
            .scaler = model_->scaler(),
            .local = local_.get(),
            .mesh = mesh_.describe() + (config_.uses_pipeline() ? ", in stages" : ""),
            .description = model_description(config_),
            .position = position_of_run()};
  }

  std::vector<exchange::Exchange*> feedback() {
    if (!outer_) return model_->feedback();
    exchange::Exchange* const outer = outer_->served().host().feedback();
    return outer == nullptr ? std::vector<exchange::Exchange*>() : std::vector{outer};
  }

  std::string position_of_run() const {
    if (!dealt_) return position_text(run_position());
    return position_text(run_position(), data_.size, served()->progress());
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
    if (progress() == nullptr) return;
    progress()->update({.epoch = static_cast<int>(epoch + 1),
                        .epochs = static_cast<int>(config_.epochs),
                        .step = step,
                        .steps = sampler_.batches(),
                        .loss = smooth_loss_,
                        .images_per_second = images_per_second(),
                        .characters_per_sample = characters_per_sample(),
                        .samples = config_.data.samples(),
                        .communication_share = meter_.communication_share(),
                        .left = meter_.time_of(total_steps() - done_)},
                       now());
  }

  std::int64_t characters_per_sample() const {
    return config_.data.name == "text" ? config_.data.context : 0;
  }

  double images_per_second() const {
    const double seconds = std::chrono::duration<double>(meter_.total()).count();
    return seconds > 0 ? static_cast<double>(samples_) / seconds : 0;
  }

  /// Evaluates in batches of one rank's samples per training pass.
  Evaluation evaluate_on(const DataSet& test) {
    if (context_.trace != nullptr) context_.trace->begin_step(-1);  // No step.
    const auto forward = [this](const torch::Tensor& inputs) {
      const auto outputs = model_->evaluate(inputs.to(context_.device));
      return outputs.defined() ? outputs.to(torch::kCPU) : outputs;
    };
    const auto batch =
        batch_size_per_replica(config_, group_.getSize()) / config_.accumulation_steps;
    return evaluate(model_->modules(), forward, test, batch,
                    dealt_ ? EvaluationRanks{*together_, *together_}
                           : EvaluationRanks{group_, *mesh_.data(), mesh_.ranks_alike()},
                    config_.parameters);
  }

  report::TrainingSummary summarize(const Evaluation& test) {
    const double ranks = together_->getSize();
    const auto sums = sum_over_ranks(
        *together_, {meter_.compute_seconds(), meter_.exposed_seconds(), meter_.sent_bytes(),
                     images_per_second(), std::chrono::duration<double>(meter_.total()).count(),
                     meter_.data_seconds()});
    return {.ranks = group_.getSize(),
            .steps = updates_.value_or(meter_.steps()),
            .test_accuracy = test.accuracy,
            .test_loss = test.loss,
            .test_images = test.images,
            .images_per_second = sums[3] / ranks,
            .characters_per_sample = characters_per_sample(),
            .samples = config_.data.samples(),
            .training = std::chrono::duration_cast<Duration>(
                std::chrono::duration<double>(sums[4] / ranks)),
            .compute_seconds = sums[0] / ranks,
            .exposed_seconds = sums[1] / ranks,
            .data_seconds = sums[5] / ranks,
            .gradient_bytes = meter_.gradient_bytes(),
            .sent_bytes = sums[2] / ranks,
            .codec = codec_text(),
            .staleness = staleness_,
            .rows = rows_,
            .memory = memory_};
  }

  /// Describes how gradients or differences are encoded; empty without a codec.
  std::string codec_text() {
    if (served() != nullptr) {
      const servers::ServedExchange& exchange = served()->exchange();
      return exchange.has_codecs() ? exchange.describe() : "";
    }
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
    losses = sum_over_ranks(*together_, std::move(losses));
    const int summed = config_.servers.deals() ? 1 : mesh_.data()->getSize() * mesh_.ranks_alike();
    for (std::size_t i = 0; i < losses.size(); ++i) record.steps[i].loss = losses[i] / summed;
    record.peak_rank_bytes = summary.memory.bytes;
    constexpr std::size_t kSamples = 2000;
    record.memory = {.samples = thinned(memory_timeline_.samples, kSamples),
                     .peak_bytes = memory_timeline_.peak_bytes};
    return record;
  }

  void measure_rows() {
    if (model_->table() == nullptr) return;
    const ServedEmbeddingReport report = model_->table()->report();
    rows_ = {.made = report.made,
             .bytes = report.bytes,
             .mean_staleness = report.mean_staleness,
             .max_staleness = report.max_staleness,
             .max_permits = report.max_permits,
             .permits = config_.servers.rows.staleness + 1};
  }

  void measure_staleness() {
    measure_rows();
    if (served() == nullptr) return;
    const servers::ServerReport report = served()->report();
    if (dealt_) {
      const auto units = static_cast<std::int64_t>(report.by_unit.size());
      updates_ = report.updates() / units / report.servers;
    }
    staleness_ =
        summarize_staleness(report, {.policy = served()->exchange().policy(),
                                     .members = served()->placement().members,
                                     .pull_every = static_cast<int>(config_.servers.pull_every)});
  }

  /// For the prediction of the staleness.
  void tell_pace() {
    servers::ServedExchange& exchange = served()->exchange();
    if (exchange.pushes() == 0) return;
    exchange.set_pace(meter_.pace(exchange.pushes()));
  }

  /// Measures the memory of training, without the last evaluation.
  void measure_memory() {
    memory_ = max_peak(*together_, context_.memory);
    if (context_.memory != nullptr) {
      memory_timeline_ = context_.memory->ledger().timeline();
    }
  }

  std::filesystem::path checkpoint_folder() const {
    return (context_.output / config_.checkpoint_folder).lexically_normal();
  }
  std::filesystem::path checkpoint_path() const { return context_.output / config_.checkpoint; }

  void save_order() {
    if (config_.servers.log.empty()) return;
    write_order(context_.output / config_.servers.log, context_.configuration, *served());
  }

  std::string write_checkpoint() {
    if (config_.checkpoint.empty()) return "";
    model_->save(checkpoint_path(), model_description(config_));
    return checkpoint_path().string();
  }

  TrainingResult conclude_together(const DataSet& test) {
    model_->synchronize_buffers();
    TrainingResult result = conclude(test);
    // No rank may leave while another is still in the last collective, or before the model is
    // saved.
    group_.barrier()->wait();
    return result;
  }

  /// The first worker that is not lost concludes the run. The others wait, as it may be lost.
  TrainingResult conclude_on_first(const DataSet& test) {
    TrainingResult result;
    tell_pace();
    for (Rank concluded = -1;; concluded = first_) {
      dealt_->meet();
      first_ = dealt_->first();
      if (first_ == concluded) return result;
      if (group_.getRank() == first_) result = conclude(test);
    }
  }

  TrainingResult conclude(const DataSet& test) {
    measure_staleness();
    if (progress() != nullptr) progress()->end_line();
    auto summary = summarize(evaluate_on(test));
    record_test(summary);
    if (dealt_ && samples_ > 0 && saved_step_ != done_) save();
    summary.checkpoint = write_checkpoint();
    save_order();
    return {whole_ ? whole_->module() : torch::nn::Sequential(nullptr), summary,
            run_record(summary), group_.getRank() == first_};
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
  ProcessGroup together_;                    ///< Ranks whose figures make the summary.
  std::optional<NoSync> no_sync_;            ///< Present with local steps: gradients stay local.
  std::unique_ptr<LocalSgd> local_;          ///< Present with local steps without servers.
  std::unique_ptr<ServedLocalSteps> outer_;  ///< Present with local steps and servers.
  std::optional<ServedLocalState> outer_state_;  ///< State of outer_.
  std::optional<StopSignals> signals_;
  StopAgreement stop_;
  emulation::SteadyAlarm alarm_;
  std::optional<SlowSteps> slow_;  ///< Present if this rank is to be slow.
  StepMeter meter_;
  RunRecorder recorder_;
  std::deque<Batch> ahead_;  ///< Prefetched.
  report::MemoryPeak memory_;
  std::optional<report::StalenessSummary> staleness_;  ///< With servers.
  std::optional<std::int64_t> updates_;                ///< A unit's, if servers deal.
  std::optional<report::RowsSummary> rows_;            ///< With rows on servers.
  MemoryTimeline memory_timeline_;
  Rank first_ = 0;                 ///< The first rank that is not lost, as far as known.
  std::int64_t done_ = 0;          ///< Steps done, including those before a resumed run started.
  std::int64_t samples_ = 0;       ///< Samples that all ranks have trained on in this run.
  servers::DealProgress resumed_;  ///< The samples of the runs that this one resumes.
  std::optional<DealtBatches> dealt_;  ///< Present if servers deal the samples.
  std::int64_t saved_mark_ = 0;        ///< mark_of() the newest checkpoint.
  std::int64_t saved_step_ = -1;       ///< Step after which the last checkpoint was written.
  double learning_rate_ = 0;           ///< Rate of the last step, of the first parameter group.
  double smooth_loss_ = 0;
};

}  // namespace

TrainingResult train(const TrainConfig& config, const TrainerContext& context) {
  if (config.hogwild.enabled) return train_hogwild(config, context);
  return Trainer(config, context).run();
}

void serve(const TrainConfig& config, const ProcessGroup& group) {
  // Workers save a checkpoint on these signals, and then leave.
  std::optional<StopSignals> ignored;
  if (config.checkpoint_every > 0) ignored.emplace();
  torch::nn::Sequential module = seeded_model(config, 0);
  if (config.local_steps.enabled) {
    make_served_local_steps(config, *module, group, nullptr);
  } else {
    make_trained_model(config, module, group, nullptr);
  }
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
