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
        steps_until_trial_(options.warmup_steps) {}

  void end_pass() override;
  std::string describe() const override;

 private:
  void decide();

  std::shared_ptr<Communicator> communicator_;
  const int lane_ = communicator_->reserve_lanes(1);
  std::string codec_;
  ExchangeOptions options_;
  std::shared_ptr<const Clock> clock_;

  int steps_until_trial_;
  std::optional<AutoTrial> trial_;  ///< Running trial, if any.
  std::optional<Time> last_end_;    ///< End of the last step.
  AutoTrial::Result seconds_;       ///< Result of the last trial; means over ranks.
  bool decided_ = false;
  bool coded_ = false;
};

void AutoExchange::end_pass() {
  ExchangeDecorator::end_pass();
  const Time now = clock_->now();
  if (trial_) {
    trial_->add(now - last_end_.value_or(now));
    if (trial_->complete()) decide();
  } else if (steps_until_trial_-- <= 0) {
    trial_.emplace(options_.trial_steps);
  }
  static_cast<CompressedExchange&>(inner()).use_codec(trial_ ? trial_->next_is_coded()
                                                             : coded_ || !decided_);
  last_end_ = clock_->now();
}

void AutoExchange::decide() {
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

std::string AutoExchange::describe() const {
  if (!decided_) return fmt::format("auto: trying whether {} makes steps shorter", codec_);
  return fmt::format("auto: {} (a step takes {:.4g} ms with {} and {:.4g} ms without)",
                     coded_ ? codec_ : "none", 1e3 * seconds_.coded, codec_, 1e3 * seconds_.plain);
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
