#include "gradwire/exchange/auto_exchange.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace gradwire::exchange {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void AutoTrial::add(Duration step) {
  const double seconds = std::chrono::duration<double>(step).count();
  if (taken_ >= 2) (next_is_coded() ? coded_ : plain_).push_back(seconds);
  ++taken_;
}

AutoTrial::Result AutoTrial::result() const {
  return {median(plain_), median(coded_)};
}

namespace {

/// A coded step is worthwhile if it takes less than this share of a plain step's time.
constexpr double kWorthwhile = 0.99;

class AutoExchange final : public ExchangeDecorator {
 public:
  AutoExchange(std::shared_ptr<Communicator> communicator,
               std::unique_ptr<CompressedExchange> exchange, std::string codec,
               const ExchangeOptions& options)
      : ExchangeDecorator(std::move(exchange)),
        communicator_(std::move(communicator)),
        codec_(std::move(codec)),
        options_(options),
        clock_(options.clock ? options.clock : std::make_shared<SteadyClock>()),
        current_{.steps_until_trial = options.warmup_steps},
        committed_(current_) {}

  void end_pass() override;
  void end_step(StepOutcome outcome) override;
  std::string describe() const override;

 private:
  /// Decides by a trial if steps are coded.
  struct Decision {
    int steps_until_trial = 0;
    std::optional<AutoTrial> trial;  ///< Running trial, if any.
    AutoTrial::Result seconds;       ///< Result of the last trial; means over ranks.
    bool decided = false;
    bool coded = false;
  };

  void decide();
  void use_next();

  std::shared_ptr<Communicator> communicator_;
  const int lane_ = communicator_->reserve_lanes(1);
  std::string codec_;
  ExchangeOptions options_;
  std::shared_ptr<const Clock> clock_;

  Decision current_;
  Decision committed_;            ///< After the last committed step.
  std::optional<Time> last_end_;  ///< End of the last step.
};

void AutoExchange::end_pass() {
  ExchangeDecorator::end_pass();
  const Time now = clock_->now();
  if (current_.trial) {
    current_.trial->add(now - last_end_.value_or(now));
    if (current_.trial->complete()) decide();
  } else if (current_.steps_until_trial-- <= 0) {
    current_.trial.emplace(options_.trial_steps);
  }
  use_next();
  last_end_ = clock_->now();
}

void AutoExchange::use_next() {
  static_cast<CompressedExchange&>(inner()).use_codec(
      current_.trial ? current_.trial->next_is_coded() : current_.coded || !current_.decided);
}

void AutoExchange::end_step(StepOutcome outcome) {
  ExchangeDecorator::end_step(outcome);
  if (outcome == StepOutcome::committed) {
    committed_ = current_;
  } else {
    current_ = committed_;
    use_next();
    last_end_ = clock_->now();
  }
}

void AutoExchange::decide() {
  const AutoTrial::Result mine = current_.trial->result();
  std::array<double, 2> sums{mine.plain, mine.coded};
  communicator_
      ->all_reduce({sums.data(), sums.size(), DataType::float64, nullptr}, ReduceOp::mean,
                   {.lane = lane_, .timeout = options_.timeout})
      .wait();
  current_ = {.steps_until_trial = options_.steps_between_trials,
              .seconds = {sums[0], sums[1]},
              .decided = true,
              .coded = sums[1] < kWorthwhile * sums[0]};
}

std::string AutoExchange::describe() const {
  if (!current_.decided) return fmt::format("auto: trying whether {} makes steps shorter", codec_);
  return fmt::format("auto: {} (a step takes {:.4g} ms with {} and {:.4g} ms without)",
                     current_.coded ? codec_ : "none", 1e3 * current_.seconds.coded, codec_,
                     1e3 * current_.seconds.plain);
}

}  // namespace

std::unique_ptr<Exchange> auto_exchange(std::shared_ptr<Communicator> communicator,
                                        std::unique_ptr<CompressedExchange> exchange,
                                        std::string codec, const ExchangeOptions& options) {
  return std::make_unique<AutoExchange>(std::move(communicator), std::move(exchange),
                                        std::move(codec), options);
}

int steps_until_decided(const ExchangeOptions& options) {
  // The step that ends the warm-up begins the trial.
  return options.warmup_steps + 1 + AutoTrial(options.trial_steps).steps();
}

}  // namespace gradwire::exchange
