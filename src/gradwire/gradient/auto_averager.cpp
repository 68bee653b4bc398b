#include "gradwire/gradient/auto_averager.h"

#include <array>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "gradwire/gradient/auto_trial.h"

namespace gradwire {
namespace {

/// A coded step is worthwhile if it takes less than this share of a plain step's time.
constexpr double kWorthwhile = 0.99;

class AutoAverager final : public Averager {
 public:
  AutoAverager(std::shared_ptr<Communicator> communicator, std::unique_ptr<CodecAverager> averager,
               std::string codec, const AveragerOptions& options)
      : communicator_(std::move(communicator)),
        averager_(std::move(averager)),
        codec_(std::move(codec)),
        options_(options),
        clock_(options.clock ? options.clock : std::make_shared<SteadyClock>()),
        steps_until_trial_(options.warmup_steps) {}

  void start(std::size_t bucket, LentSpan data, int priority) override {
    averager_->start(bucket, std::move(data), priority);
  }
  bool done(std::size_t bucket) override { return averager_->done(bucket); }
  void wait(std::size_t bucket) override { averager_->wait(bucket); }
  void end_step() override;

  std::vector<State> state() override { return averager_->state(); }
  void load_state(const std::vector<SavedState>& saved) override { averager_->load_state(saved); }
  std::string describe() const override;
  void on_finished(std::function<void(std::size_t bucket)> finished) override {
    averager_->on_finished(std::move(finished));
  }

 private:
  void decide();

  std::shared_ptr<Communicator> communicator_;
  const int lane_ = communicator_->reserve_lanes(1);
  std::unique_ptr<CodecAverager> averager_;
  std::string codec_;
  AveragerOptions options_;
  std::shared_ptr<const Clock> clock_;

  int steps_until_trial_;
  std::optional<AutoTrial> trial_;  ///< Running trial, if any.
  std::optional<Time> last_end_;    ///< End of the last step.
  AutoTrial::Result seconds_;       ///< Of the last trial; means over ranks.
  bool decided_ = false;
  bool coded_ = false;
};

void AutoAverager::end_step() {
  averager_->end_step();
  const Time now = clock_->now();
  if (trial_) {
    trial_->add(now - last_end_.value_or(now));
    if (trial_->complete()) decide();
  } else if (steps_until_trial_-- <= 0) {
    trial_.emplace(options_.trial_steps);
  }
  averager_->use_codec(trial_ ? trial_->next_is_coded() : coded_ || !decided_);
  last_end_ = clock_->now();
}

void AutoAverager::decide() {
  const AutoTrial::Result mine = trial_->result();
  std::array<double, 2> sums{mine.plain, mine.coded};
  communicator_
      ->all_reduce({sums.data(), sums.size(), DataType::float64, nullptr}, ReduceOp::mean,
                   {.lane = lane_, .timeout = options_.timeout})
      .wait();
  seconds_ = {sums[0], sums[1]};
  coded_ = seconds_.coded < kWorthwhile * seconds_.plain;
  decided_ = true;
  trial_.reset();
  steps_until_trial_ = options_.steps_between_trials;
}

std::string AutoAverager::describe() const {
  if (!decided_) return fmt::format("auto: trying whether {} makes steps shorter", codec_);
  return fmt::format("auto: {} (a step takes {:.4g} ms with {} and {:.4g} ms without)",
                     coded_ ? codec_ : "none", 1e3 * seconds_.coded, codec_, 1e3 * seconds_.plain);
}

}  // namespace

std::unique_ptr<Averager> auto_averager(std::shared_ptr<Communicator> communicator,
                                        std::unique_ptr<CodecAverager> averager, std::string codec,
                                        const AveragerOptions& options) {
  return std::make_unique<AutoAverager>(std::move(communicator), std::move(averager),
                                        std::move(codec), options);
}

int steps_until_decided(const AveragerOptions& options) {
  // The step that ends the warm-up begins the trial.
  return options.warmup_steps + 1 + AutoTrial(options.trial_steps).steps();
}

}  // namespace gradwire
