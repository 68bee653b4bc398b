#include "gradwire/recipe/hogwild_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/statistics.h"
#include "gradwire/recipe/batch_stream.h"
#include "gradwire/recipe/evaluate.h"
#include "gradwire/recipe/hogwild_config.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/recipe/run_memory.h"
#include "gradwire/recipe/run_recorder.h"
#include "gradwire/train/checkpoint/save.h"
#include "gradwire/train/hogwild/hogwild.h"
#include "gradwire/train/optim/amp.h"

namespace gradwire::recipe {
namespace {

/// The learning rates are those of a batch of all threads, without the schedule.
OptimizerFactory shared_optimizer(const TrainConfig& config) {
  return [&config](const std::vector<NamedTensor>& parameters) {
    auto optimizer = make_optimizer(config.optimizer, parameters);
    set_learning_rates(*optimizer, learning_rates(config.optimizer, config.batch_size, 1));
    return optimizer;
  };
}

HogwildOptions hogwild_options(const TrainConfig& config) {
  return {.optimizer = shared_optimizer(config),
          .threads = static_cast<int>(config.hogwild.threads),
          .oversubscribe = config.hogwild.oversubscribe,
          .seed = config.seed};
}

/// One run. Methods are in the order of their calls.
class HogwildRun {
 public:
  HogwildRun(const TrainConfig& config, const TrainerContext& context)
      : config_(config),
        context_(context),
        threads_(hogwild_threads(config, context.group->getSize())),
        data_(load_data(config.data, Split::train)),
        sampler_({.samples = data_.size,
                  .batch_size = batch_size_per_thread(config, threads_, 1),
                  .seed = config.seed}),
        model_(seeded_model(config, 0)),
        hogwild_(
            model_, [&config] { return make_model(config.model); }, hogwild_options(config)) {}

  TrainingResult run() {
    print_advice();
    const DataSet test = load_data(config_.data, Split::test);
    for (std::int64_t epoch = 0; epoch < config_.epochs; ++epoch) {
      run_epoch(epoch);
      const bool is_last = epoch + 1 == config_.epochs;
      if (is_last || config_.evaluate_every == 0) continue;
      if ((epoch + 1) % config_.evaluate_every == 0) evaluate_after(epoch, test);
    }
    return conclude(test);
  }

 private:
  Time now() const { return context_.clock->now(); }
  std::int64_t batch_size() const { return sampler_.options().batch_size; }
  std::int64_t total_samples() const { return config_.epochs * data_.size; }

  void print_advice() {
    if (context_.progress == nullptr || threads_ == 1) return;
    context_.progress->print(fmt::format(
        "warning: {0} threads take {0} steps of {1} samples where one takes a step of {2}: lower "
        "optimizer.learning_rate if the loss grows",
        threads_, batch_size(), config_.batch_size));
  }

  void run_epoch(std::int64_t epoch) {
    for (torch::nn::Sequential& module : hogwild_.modules()) module->train();
    sampler_.start_epoch(epoch);
    next_ = 0;
    begin_ = now();
    recorder_.begin_epoch(begin_);
    const HogwildResult done =
        hogwild_.run([&](torch::nn::Sequential& mine, HogwildThread& thread) {
          train_on_batches(epoch, mine, thread);
        });
    const Time end = now();
    before_ += end - begin_;
    recorder_.end_epoch(end, true);
    updates_.threads = done.threads;
    updates_.updates += done.updates;
    updates_.sampled += done.sampled;
    updates_.lost += done.lost;
  }

  /// On each thread.
  void train_on_batches(std::int64_t epoch, torch::nn::Sequential& mine, HogwildThread& thread) {
    for (std::int64_t at; (at = next_.fetch_add(batch_size())) < data_.size;) {
      const Time begin = now();
      const std::int64_t count = std::min(batch_size(), data_.size - at);
      const Batch batch = data_.batch(sampler_.at(at, count));
      const Time has_data = now();
      const double factor = rate_factor(epoch * data_.size + at);
      const torch::Tensor loss = loss_of(mine, batch);
      loss.backward();
      thread.step(factor);
      const Time end = now();
      finished(epoch, count, loss.item<double>(), factor,
               {.compute = seconds(end - has_data), .data = seconds(has_data - begin)});
    }
  }

  torch::Tensor loss_of(torch::nn::Sequential& module, const Batch& batch) const {
    const Autocast autocast(config_.precision);
    return torch::nll_loss_nd(module->forward(batch.inputs), batch.targets);
  }

  /// The schedule counts steps of `batch_size` samples, which all threads have taken together.
  double rate_factor(std::int64_t samples) const {
    const std::int64_t in_epoch = std::max<std::int64_t>(1, data_.size / config_.batch_size);
    const std::int64_t total = config_.epochs * in_epoch;
    return learning_rate_factor(config_.schedule, std::min(samples / config_.batch_size, total - 1),
                                total, in_epoch);
  }

  void finished(std::int64_t epoch, std::int64_t count, double loss, double factor,
                const StepTimes& times) {
    constexpr double kMemory = 0.95;  // Decay of the displayed mean over about 20 steps.
    const std::lock_guard lock(mutex_);
    smooth_loss_ = steps() == 0 ? loss : kMemory * smooth_loss_ + (1 - kMemory) * loss;
    recorder_.step(steps(), loss, learning_rates(config_.optimizer, config_.batch_size, factor)[0],
                   times);
    compute_.push_back(times.compute);
    waited_.push_back(times.data);
    samples_ += count;
    if (context_.progress != nullptr) show_progress(epoch, now());
  }

  std::int64_t steps() const { return static_cast<std::int64_t>(compute_.size()); }

  void show_progress(std::int64_t epoch, Time time) {
    const double elapsed = seconds(before_ + (time - begin_));
    const double rate = elapsed > 0 ? static_cast<double>(samples_) / elapsed : 0;
    const auto left = static_cast<double>(total_samples() - samples_);
    const std::int64_t in_epoch = (data_.size + batch_size() - 1) / batch_size();
    context_.progress->update({.epoch = static_cast<int>(epoch + 1),
                               .epochs = static_cast<int>(config_.epochs),
                               .step = (steps() - 1) % in_epoch + 1,
                               .steps = in_epoch,
                               .loss = smooth_loss_,
                               .images_per_second = rate,
                               .characters_per_sample = characters_per_sample(),
                               .samples = config_.data.samples(),
                               .left = duration_of(rate > 0 ? left / rate : 0)},
                              time);
  }

  std::int64_t characters_per_sample() const {
    return config_.data.name == "text" ? config_.data.context : 0;
  }

  Evaluation evaluate_on(const DataSet& test) {
    const auto forward = [this](const torch::Tensor& inputs) { return model_->forward(inputs); };
    return evaluate({model_.ptr()}, forward, test, config_.batch_size,
                    {*context_.group, *context_.group});
  }

  void evaluate_after(std::int64_t epoch, const DataSet& test) {
    const auto tested = summarize(evaluate_on(test));
    record_test(tested);
    if (context_.progress == nullptr) return;
    context_.progress->print(fmt::format("epoch {}/{}  test accuracy {}", epoch + 1, config_.epochs,
                                         report::test_text(tested)));
  }

  void record_test(const report::TrainingSummary& tested) {
    recorder_.test({.steps = steps(), .loss = tested.test_loss, .accuracy = tested.test_accuracy});
  }

  report::TrainingSummary summarize(const Evaluation& test) const {
    const double elapsed = seconds(before_);
    return {.steps = steps(),
            .test_accuracy = test.accuracy,
            .test_loss = test.loss,
            .test_images = test.images,
            .images_per_second = elapsed > 0 ? static_cast<double>(samples_) / elapsed : 0,
            .characters_per_sample = characters_per_sample(),
            .samples = config_.data.samples(),
            .training = before_,
            .compute_seconds = median(compute_),
            .data_seconds = median(waited_),
            .hogwild = updates_};
  }

  TrainingResult conclude(const DataSet& test) {
    const report::MemoryPeak memory = max_peak(*context_.group, context_.memory);
    if (context_.progress != nullptr) context_.progress->end_line();
    auto summary = summarize(evaluate_on(test));
    summary.memory = memory;
    record_test(summary);
    if (!config_.checkpoint.empty()) {
      const auto path = context_.output / config_.checkpoint;
      save_model(path, *model_, model_description(config_));
      summary.checkpoint = path.string();
    }
    auto record = recorder_.record(config_, summary);
    record.peak_rank_bytes = memory.bytes;
    return {model_, summary, record, true};
  }

  const TrainConfig& config_;
  const TrainerContext& context_;
  int threads_;
  DataSet data_;
  Sampler sampler_;
  torch::nn::Sequential model_;
  Hogwild<torch::nn::Sequential> hogwild_;
  std::atomic<std::int64_t> next_ = 0;  ///< The first sample of the epoch that no thread has taken.
  report::HogwildSummary updates_;
  Duration before_{};  ///< The epochs before, without evaluations.
  Time begin_{};       ///< The begin of this epoch.

  std::mutex mutex_;  ///< For all below, while threads run.
  RunRecorder recorder_;
  std::vector<double> compute_, waited_;  ///< Seconds of each step.
  std::int64_t samples_ = 0;
  double smooth_loss_ = 0;
};

}  // namespace

TrainingResult train_hogwild(const TrainConfig& config, const TrainerContext& context) {
  if (context.trace != nullptr) {
    refuse("a trace has one thread of each rank, and hogwild several; leave one of them out");
  }
  return HogwildRun(config, context).run();
}

int hogwild_threads(const TrainConfig& config, int ranks) {
  const int threads = HogwildCore::threads_of({.threads = static_cast<int>(config.hogwild.threads),
                                               .oversubscribe = config.hogwild.oversubscribe});
  batch_size_per_thread(config, threads, ranks);
  return threads;
}

std::string hogwild_text(const TrainConfig& config, int ranks) {
  if (!config.hogwild.enabled) return "";
  const int threads = hogwild_threads(config, ranks);
  return fmt::format("hogwild: {} threads that share the parameters, batches of {} samples\n",
                     threads, batch_size_per_thread(config, threads, ranks));
}

}  // namespace gradwire::recipe
