#include "gradwire/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "gradwire/torch/process_group.h"
#include "gradwire/train/accumulate.h"
#include "gradwire/train/batch_stream.h"
#include "gradwire/train/data_parallel.h"
#include "gradwire/train/evaluate.h"
#include "gradwire/train/learning_rate.h"
#include "gradwire/train/optimizers.h"
#include "gradwire/train/safetensors.h"
#include "gradwire/train/step_meter.h"

namespace gradwire {
namespace {

ImageData load_training_data(const DataConfig& config) {
  auto data = load_fashion_mnist(Split::train, config.path);
  if (config.limit == 0 || config.limit >= data.size()) return data;
  return {.images = data.images.narrow(0, 0, config.limit),
          .labels = data.labels.narrow(0, 0, config.limit)};
}

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

DataParallelOptions parallel_options(const TrainConfig& config, ProcessGroup group) {
  return {.process_group = std::move(group),
          .bucket_cap_mb = config.parallel.bucket_cap_mb,
          .broadcast_buffers = config.parallel.broadcast_buffers,
          .find_unused_parameters = config.parallel.find_unused_parameters};
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
        data_(load_training_data(config.data)),
        sampler_(training_sampler(config, data_.size(), group_)),
        model_(seeded_model(config, group_.getRank()),
               parallel_options(config, surroundings.group)),
        optimizer_(make_optimizer(config.optimizer, model_->parameters())) {}

  TrainingResult run() {
    const auto test = load_fashion_mnist(Split::test, config_.data.path);
    for (std::int64_t epoch = 0; epoch < config_.epochs; ++epoch) run_epoch(epoch);
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
  std::int64_t total_steps() const { return config_.epochs * sampler_.batches(); }

  void run_epoch(std::int64_t epoch) {
    model_->train();
    BatchStream batches(data_, sampler_, epoch, static_cast<std::size_t>(config_.data.prefetch));
    std::int64_t step = 0;
    while (const auto batch = batches.next()) {
      meter_.begin(now(), model_.stats(), sent());
      const double loss = run_step(*batch, epoch * sampler_.batches() + step);
      meter_.end(now(), model_.stats(), sent());
      show(epoch, ++step, loss);
    }
  }

  double run_step(const Batch& batch, std::int64_t step) {
    set_learning_rate(*optimizer_, config_.optimizer.learning_rate *
                                       learning_rate_factor(config_.schedule, step, total_steps(),
                                                            sampler_.batches()));
    optimizer_->zero_grad();
    const auto loss = accumulate(
        model_, batch.inputs, batch.targets, static_cast<int>(config_.accumulation_steps),
        [](const auto& output, const auto& target) { return torch::nll_loss(output, target); });
    optimizer_->step();
    return loss.item<double>();
  }

  void show(std::int64_t epoch, std::int64_t step, double loss) {
    constexpr double kMemory = 0.95;  // The line shows a running mean of about 20 steps.
    smooth_loss_ = meter_.steps() == 1 ? loss : kMemory * smooth_loss_ + (1 - kMemory) * loss;
    if (surroundings_.progress == nullptr) return;
    const auto left = meter_.total() * (total_steps() - meter_.steps()) / meter_.steps();
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
                 images_per_second(), std::chrono::duration<double>(meter_.total()).count()});
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
            .gradient_bytes = meter_.gradient_bytes(),
            .sent_bytes = sums[2] / ranks};
  }

  std::string write_checkpoint() {
    if (config_.checkpoint.empty()) return "";
    const auto path = surroundings_.output / config_.checkpoint;
    if (group_.getRank() == 0) {
      auto state = all_parameters(*model_.module());
      for (auto& buffer : all_buffers(*model_.module())) state.push_back(std::move(buffer));
      save_safetensors(path, state, {{"format", "pt"}, {"model", config_.model.name}});
    }
    return path.string();
  }

  const TrainConfig& config_;
  const TrainerSurroundings& surroundings_;
  c10d::ProcessGroup& group_;
  std::shared_ptr<Communicator> communicator_;
  ImageData data_;
  Sampler sampler_;
  DataParallel<torch::nn::Sequential> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  StepMeter meter_;
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
