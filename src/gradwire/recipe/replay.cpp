#include "gradwire/recipe/replay.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/json_document.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/data/sampler.h"
#include "gradwire/host/restore_point.h"
#include "gradwire/host/training_host.h"
#include "gradwire/recipe/batch_stream.h"
#include "gradwire/recipe/evaluate.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/recipe/trained_model.h"
#include "gradwire/report/training_summary.h"
#include "gradwire/servers/order_log.h"
#include "gradwire/servers/order_replay.h"
#include "gradwire/train/servers/replayed_module.h"

namespace gradwire::recipe {
namespace {

servers::OrderLog read_order_file(const std::filesystem::path& file) {
  const auto text = read_file(file);
  if (!text) refuse("--replay: {}", text.error().message);
  return servers::decode_order(*text, file.string());
}

/// The configuration of one worker's steps, which this process takes alone.
TrainConfig config_of_worker(const servers::OrderLog& log, const ReplayContext& context) {
  const auto name = context.order.string() + ": the configuration";
  TrainConfig config =
      parse_train_config(value_or_throw(parse_json_document(log.configuration, name)));
  if (!context.data.empty()) config.data.path = context.data;
  config.batch_size = batch_size_per_replica(config, log.placement.workers);
  return config;
}

/// The model of a run with servers, trained without them.
class ReplayedTraining final : public WholeModel {
 public:
  ReplayedTraining(const TrainConfig& config, torch::nn::Sequential module, int servers)
      : WholeModel(config, group_of_one(), nullptr),
        model_(std::move(module), {.servers = servers,
                                   .optimizer = optimizer_factory(config.optimizer),
                                   .bucket_cap_mb = config.parallel.bucket_cap_mb,
                                   .overlap = config.parallel.overlap}) {}

  torch::Tensor operator()(const torch::Tensor& inputs) override { return model_(inputs); }
  bool step_in_backward(const LearningRates& /*rates*/) override {
    core().step_in_backward();
    return true;
  }
  bool step(const LearningRates& /*rates*/, LossScaler* /*scaler*/) override { return true; }
  torch::nn::Sequential& module() override { return model_.module(); }
  torch::nn::Sequential& whole_module() override { return model_.module(); }
  TrainingHost& host() override { return model_.host(); }
  Checkpointable& state() override { refuse("a replay has no checkpoints"); }
  ReplayedModule& core() { return model_.core(); }

 private:
  class Model : public DistributedModel<torch::nn::Sequential, ReplayedModule> {
   public:
    Model(torch::nn::Sequential module, const ReplayedOptions& options)
        : DistributedModel(std::move(module), options) {}
  };

  Model model_;
};

/// Computes the steps of all workers with one model.
class ReplayedRun final : public servers::ReplayedWorkers {
 public:
  ReplayedRun(const servers::OrderLog& log, const TrainConfig& config)
      : config_(config),
        data_(load_data(config.data, Split::train)),
        sampler_({.samples = data_.size,
                  .batch_size = config.batch_size,
                  .world_size = log.placement.workers,
                  .seed = config.seed,
                  .uneven = config.data.uneven}),
        model_(config, seeded_model(config, 0), log.placement.servers) {
    for (Rank worker = 0; worker < log.placement.workers; ++worker) {
      torch::manual_seed(mixed_seed({config.seed, static_cast<std::uint64_t>(worker)}));
      workers_.emplace_back(model_.host().buffers(), std::vector<NamedTensor>());
    }
    model_.module()->train();
  }

  LentSpan values(std::size_t unit) override { return model_.core().values(unit); }
  LentSpan gradient(std::size_t unit) override { return model_.core().gradient(unit); }

  std::uint32_t compute(const servers::WorkerStep& step) override {
    RestorePoint& worker = workers_[static_cast<std::size_t>(step.worker)];
    worker.restore();
    const std::uint32_t random = random_checksum();
    loss_ = model_.train_step(batch_of(step), {});
    model_.finish();
    worker.keep();
    return random;
  }

  ReplayedTraining& model() { return model_; }
  double loss() const { return loss_; }  ///< The last step's.

 private:
  Batch batch_of(const servers::WorkerStep& step) {
    if (step.batches.size() != 1) {
      refuse("step {} of worker {} has {} batches, and a step has one", step.number, step.worker,
             step.batches.size());
    }
    const servers::Deal& dealt = step.batches.front();
    if (dealt.epoch >= config_.epochs || dealt.begin > data_.size - dealt.count) {
      refuse("the data has no samples {} to {} in epoch {}: give the run's data set with --data",
             dealt.begin, dealt.begin + dealt.count, dealt.epoch);
    }
    if (dealt.epoch != epoch_) sampler_.start_epoch(epoch_ = dealt.epoch);
    return data_.batch(sampler_.at(dealt.begin, dealt.count));
  }

  const TrainConfig& config_;
  DataSet data_;
  Sampler sampler_;
  std::int64_t epoch_ = 0;  ///< Whose order the sampler has.
  ReplayedTraining model_;
  std::vector<RestorePoint> workers_;  ///< Their random numbers and buffers.
  double loss_ = 0;
};

constexpr const char* kStepColumns =
    "worker,step,epoch,begin,samples,loss,staleness,rate,applied,dropped\n";

/// A row of "replay.csv".
std::string row_of(const servers::WorkerStep& step, double loss) {
  const servers::Deal& batch = step.batches.front();
  return fmt::format("{},{},{},{},{},{:.9g},{},{:.9g},{},{}\n", step.worker, step.number,
                     batch.epoch, batch.begin, batch.count, loss, step.staleness, step.factor,
                     step.applied, step.dropped);
}

/// A row for each worker.
std::string table_of(const servers::WorkerSteps& steps) {
  std::string table = fmt::format("{:>6}{:>10}{:>10}{:>10}{:>17}{:>6}\n", "worker", "steps",
                                  "samples", "dropped", "staleness, mean", "max");
  for (std::size_t worker = 0; worker < steps.by_worker.size(); ++worker) {
    std::int64_t samples = 0, sum = 0, most = 0, dropped = 0;
    std::size_t applied = 0;
    for (const servers::WorkerStep& step : steps.by_worker[worker]) {
      for (const servers::Deal& batch : step.batches) samples += batch.count;
      sum += step.staleness_sum;
      applied += step.applied;
      most = std::max(most, step.staleness);
      if (step.applied == 0) ++dropped;
    }
    const double mean = applied == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(applied);
    table += fmt::format("{:>6}{:>10}{:>10}{:>10}{:>17.2f}{:>6}\n", worker,
                         steps.by_worker[worker].size(), samples, dropped, mean, most);
  }
  return table;
}

report::TrainingSummary tested(ReplayedTraining& model, const TrainConfig& config) {
  const auto alone = group_of_one();
  const auto forward = [&](const torch::Tensor& inputs) { return model.evaluate(inputs); };
  const Evaluation found =
      evaluate(model.modules(), forward, load_data(config.data, Split::test),
               config.batch_size / config.accumulation_steps, {*alone, *alone}, config.parameters);
  return {.test_accuracy = found.accuracy,
          .test_loss = found.loss,
          .test_images = found.images,
          .characters_per_sample = config.data.name == "text" ? config.data.context : 0,
          .samples = config.data.samples()};
}

/// Shows the steps that are computed, and keeps their rows.
class StepRows {
 public:
  StepRows(const ReplayContext& context, const servers::WorkerSteps& steps,
           std::int64_t samples_per_row)
      : context_(context), begin_(context.clock->now()), samples_per_row_(samples_per_row) {
    for (const auto& of_worker : steps.by_worker) {
      total_ += static_cast<std::int64_t>(of_worker.size());
    }
  }

  void add(const servers::WorkerStep& step, double loss) {
    rows_ += row_of(step, loss);
    ++done_;
    if (context_.progress == nullptr) return;
    const Duration passed = context_.clock->now() - begin_;
    const double rate = static_cast<double>(done_) / std::max(seconds(passed), 1e-9);
    context_.progress->update(
        {.step = done_,
         .steps = total_,
         .loss = loss,
         .images_per_second = rate * static_cast<double>(samples_per_row_),
         .left = std::chrono::duration_cast<Duration>(
             std::chrono::duration<double>(static_cast<double>(total_ - done_) / rate))},
        context_.clock->now());
  }

  void write() const {
    if (context_.progress != nullptr) context_.progress->end_line();
    write_file(context_.output / "replay.csv", rows_);
  }

 private:
  const ReplayContext& context_;
  Time begin_;
  std::int64_t samples_per_row_, total_ = 0, done_ = 0;
  std::string rows_ = kStepColumns;
};

}  // namespace

void require_equal_threads(c10d::ProcessGroup& group) {
  const auto threads = gather_texts(group, std::to_string(at::get_num_threads()));
  const auto other = std::ranges::find_if(
      threads, [&](const std::string& each) { return each != threads.front(); });
  if (other == threads.end()) return;
  refuse(
      "servers.log: rank 0 computes with {} threads and rank {} with {}, which one process cannot "
      "repeat: set OMP_NUM_THREADS to the same number everywhere",
      threads.front(), other - threads.begin(), *other);
}

void write_order(const std::filesystem::path& file, const std::string& configuration,
                 ServedModule& served) {
  const servers::OrderLog log{.configuration = configuration,
                              .placement = served.placement(),
                              .threads = at::get_num_threads(),
                              .servers = served.order()};
  write_file(file, servers::encode_order(log));
}

ReplayResult replay(const ReplayContext& context) {
  const servers::OrderLog log = read_order_file(context.order);
  const TrainConfig config = config_of_worker(log, context);
  at::set_num_threads(log.threads);
  ReplayedRun run(log, config);
  servers::OrderReplay replay(log, run.model().core().servers(), run);
  StepRows rows(context, replay.steps(), config.batch_size);
  replay.run([&](const servers::WorkerStep& step) { rows.add(step, run.loss()); });
  rows.write();
  run.model().core().take_values();
  const std::string test = report::test_text(tested(run.model(), config));
  ReplayResult result{.text = table_of(replay.steps()) + "test accuracy  " + test + "\n",
                      .difference = replay.difference()};
  if (!config.checkpoint.empty()) {
    run.model().save(context.output / config.checkpoint, model_description(config));
  }
  return result;
}

}  // namespace gradwire::recipe
