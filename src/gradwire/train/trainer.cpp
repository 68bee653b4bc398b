#include "gradwire/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>

#include "gradwire/torch/process_group.h"
#include "gradwire/train/batch_stream.h"
#include "gradwire/train/checkpoint.h"
#include "gradwire/train/data_parallel.h"
#include "gradwire/train/evaluate.h"
#include "gradwire/train/learning_rate.h"
#include "gradwire/train/load_data.h"
#include "gradwire/train/local_sgd.h"
#include "gradwire/train/optimizers.h"
#include "gradwire/train/step_meter.h"
#include "gradwire/train/training_step.h"

namespace gradwire {
namespace {

/// The weights come from the seed alone; what is random afterwards (dropout) differs between ranks.
torch::nn::Sequential seeded_model(const TrainConfig& config, int rank) {
  // libtorch's generator is one for the whole process, in which ranks may be threads.
  static std::mutex generator;
  const std::lock_guard lock(generator);
  torch::manual_seed(config.seed);
  auto model = make_model(config.model);
  torch::manual_seed(config.seed + 1 + static_cast<std::uint64_t>(rank));
  return model;
}

DataParallelOptions parallel_options(const TrainConfig& config, ProcessGroup group,
                                     TraceRecorder* trace) {
  return {.process_group = std::move(group),
          .bucket_cap_mb = config.parallel.bucket_cap_mb,
          .broadcast_buffers = config.parallel.broadcast_buffers,
          .find_unused_parameters = config.parallel.find_unused_parameters,
          .optimizer =
              [&config](std::vector<torch::Tensor> parameters) {
                return make_optimizer(config.optimizer, std::move(parameters));
              },
          .overlap = config.parallel.overlap,
          .codec = config.local_steps.enabled ? "none" : config.parallel.codec,
          .codec_min_elements = static_cast<std::size_t>(config.parallel.codec_min_elements),
          .codec_warmup_steps = static_cast<int>(config.parallel.codec_warmup_steps),
          .codec_seed = config.seed,
          .check_finite = config.parallel.check_finite,
          .trace = trace};
}

Sampler training_sampler(const TrainConfig& config, std::int64_t samples,
                         const c10d::ProcessGroup& group) {
  return Sampler({.samples = samples,
                  .batch_size = batch_size_per_rank(config, group.getSize()),
                  .rank = group.getRank(),
                  .world_size = group.getSize(),
                  .seed = config.seed,
                  .uneven = config.data.uneven});
}

/// One run. Its parts in the order in which they are needed.
class Trainer {
 public:
  Trainer(const TrainConfig& config, const TrainerSurroundings& surroundings)
      : config_(config),
        surroundings_(surroundings),
        group_(*surroundings.group),
        communicator_(communicator_of(group_)),
        data_(load_data(config.data, Split::train)),
        sampler_(training_sampler(config, data_.size, group_)),
        model_(seeded_model(config, group_.getRank()),
               parallel_options(config, surroundings.group, surroundings.trace)),
        step_(config, model_, surroundings.trace) {
    if (config.local_steps.enabled) train_alone();
    if (!config.resume.empty()) resume();
  }

  TrainingResult run() {
    const auto test = load_data(config_.data, Split::test);
    const auto epochs_done = done_ / sampler_.batches();
    for (auto epoch = epochs_done; epoch < config_.epochs; ++epoch) run_epoch(epoch);
    model_.finish();
    meter_.sent_so_far(sent());
    if (local_) local_->synchronise();
    if (local_ || kept_ != done_) keep();
    if (surroundings_.progress != nullptr) surroundings_.progress->end_line();
    model_.synchronise_buffers();
    auto summary = summarise(evaluate(model_.module(), test, group_));
    summary.checkpoint = write_checkpoint();
    // Nobody leaves while another still works on the last collective, or before the model is safe.
    group_.barrier()->wait();
    return {model_.module(), summary};
  }

 private:
  Time now() const { return surroundings_.clock->now(); }
  double sent() const {
    return communicator_ ? static_cast<double>(communicator_->payload_bytes_sent()) : -1;
  }
  ReducerStats stats() const { return local_ ? local_->stats() : model_.stats(); }
  std::int64_t total_steps() const { return config_.epochs * sampler_.batches(); }

  /// Instead of gradients at each step, ranks average parameters now and then.
  void train_alone() {
    alone_.emplace(model_.core());
    local_ = std::make_unique<LocalSgd>(
        trainable_parameters(*model_.module()), surroundings_.group,
        LocalSgdOptions{
            .steps = config_.local_steps, .seed = config_.seed, .trace = surroundings_.trace});
  }

  void run_epoch(std::int64_t epoch) {
    model_->train();
    const auto first = done_ % sampler_.batches();
    BatchStream batches(data_, sampler_, epoch, static_cast<std::size_t>(config_.data.prefetch),
                        first);
    for (auto step = first; step < sampler_.batches();) {
      TraceStep scope(surroundings_.trace, done_);
      const double sent_before = sent();
      meter_.begin(now(), stats(), sent_before);
      const auto batch = next_batch(batches);
      const double loss = run_step(batch);
      meter_.end(now(), stats(), sent());
      if (communicator_) scope.set_bytes(static_cast<std::uint64_t>(sent() - sent_before));
      show(epoch, ++step, loss);
      if (config_.checkpoint_every > 0 && done_ % config_.checkpoint_every == 0) keep();
    }
  }

  Batch next_batch(BatchStream& batches) {
    const TraceScope scope(surroundings_.trace, TraceKind::data);
    auto batch = batches.next();
    meter_.got_data(now());
    return std::move(*batch);
  }

  double run_step(const Batch& batch) {
    const double rate =
        scaled_learning_rate(config_.optimizer, config_.batch_size) *
        learning_rate_factor(config_.schedule, done_, total_steps(), sampler_.batches());
    const double loss = step_.run(batch, rate);
    if (local_) step_together();
    ++done_;
    return loss;
  }

  void step_together() {
    const TraceScope scope(surroundings_.trace, TraceKind::optimiser, "local steps");
    local_->step();
  }

  void resume() {
    done_ = load_checkpoint(config_.resume, run_state());
    if (config_.resume == checkpoint_path()) kept_ = done_;
  }

  /// Writes a checkpoint to go on from, if there are to be any.
  void keep() {
    if (config_.checkpoint_every == 0) return;
    const TraceScope scope(surroundings_.trace, TraceKind::other, "checkpoint");
    save_checkpoint(checkpoint_path(), run_state(), done_, kept_);
    kept_ = done_;
  }

  RunState run_state() {
    return {.module = *model_.module(),
            .parallel = model_.core(),
            .scaler = step_.scaler(),
            .local = local_.get(),
            .model = config_.model.name};
  }

  void show(std::int64_t epoch, std::int64_t step, double loss) {
    constexpr double kMemory = 0.95;  // The line shows a running mean of about 20 steps.
    smooth_loss_ = meter_.steps() == 1 ? loss : kMemory * smooth_loss_ + (1 - kMemory) * loss;
    if (surroundings_.progress == nullptr) return;
    const auto left = meter_.total() * (total_steps() - done_) / meter_.steps();
    surroundings_.progress->update({.epoch = static_cast<int>(epoch + 1),
                                    .epochs = static_cast<int>(config_.epochs),
                                    .step = step,
                                    .steps = sampler_.batches(),
                                    .loss = smooth_loss_,
                                    .images_per_second = images_per_second(),
                                    .communication_share = meter_.communication_share(),
                                    .left = left},
                                   now());
  }

  double images_per_second() const {
    const double seconds = std::chrono::duration<double>(meter_.total()).count();
    return seconds > 0 ? static_cast<double>(meter_.steps() * config_.batch_size) / seconds : 0;
  }

  TrainingSummary summarise(const Evaluation& test) {
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
            .training = std::chrono::duration_cast<Duration>(
                std::chrono::duration<double>(sums[4] / ranks)),
            .compute_seconds = sums[0] / ranks,
            .exposed_seconds = sums[1] / ranks,
            .data_seconds = sums[5] / ranks,
            .gradient_bytes = meter_.gradient_bytes(),
            .sent_bytes = sums[2] / ranks};
  }

  std::filesystem::path checkpoint_path() const {
    return surroundings_.output / config_.checkpoint;
  }

  std::string write_checkpoint() {
    if (config_.checkpoint.empty()) return "";
    if (config_.checkpoint_every == 0) save_model(checkpoint_path(), run_state());
    return checkpoint_path().string();
  }

  const TrainConfig& config_;
  const TrainerSurroundings& surroundings_;
  c10d::ProcessGroup& group_;
  std::shared_ptr<Communicator> communicator_;
  DataSet data_;
  Sampler sampler_;
  DataParallel<torch::nn::Sequential> model_;
  TrainingStep step_;
  std::optional<NoSync> alone_;      ///< With local steps: gradients stay here.
  std::unique_ptr<LocalSgd> local_;  ///< With local steps.
  StepMeter meter_;
  std::int64_t done_ = 0;   ///< Steps, those before a resumed run's beginning included.
  std::int64_t kept_ = -1;  ///< After which step the last checkpoint was written.
  double smooth_loss_ = 0;
};

}  // namespace

TrainingResult train(const TrainConfig& config, const TrainerSurroundings& surroundings) {
  return Trainer(config, surroundings).run();
}

int threads_per_rank(int cores, int local_ranks) {
  return std::max(1, cores / local_ranks);
}

}  // namespace gradwire
