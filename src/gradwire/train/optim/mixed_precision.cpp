#include "gradwire/train/optim/mixed_precision.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

/// Steps from 2^16 by halving to 2^-16, where the default dynamic scale gives up, plus one.
constexpr std::int64_t kMaxConsecutiveBad = 33;

}  // namespace

void LossScaler::update(bool finite) {
  finite ? count_good() : count_bad();
}

void LossScaler::count_good() {
  consecutive_bad_ = 0;
  if (options_.consecutive_hysteresis) tolerated_ = 0;
  if (++good_steps_ < options_.growth_interval) return;
  good_steps_ = 0;
  tolerated_ = 0;
  if (!options_.fixed) scale_ *= options_.growth;
}

void LossScaler::count_bad() {
  ++skipped_;
  good_steps_ = 0;
  if (options_.fixed) {
    if (++consecutive_bad_ == kMaxConsecutiveBad) give_up();
    return;
  }
  if (tolerated_ + 1 < options_.hysteresis) {
    ++tolerated_;
    return;
  }
  if (scale_ <= options_.min_scale) give_up();
  scale_ = std::max(scale_ * options_.backoff, options_.min_scale);
}

void LossScaler::give_up() const {
  const auto where = options_.fixed
                         ? fmt::format("in {} consecutive steps at the fixed loss scale {}",
                                       kMaxConsecutiveBad, scale_)
                         : fmt::format("at any loss scale down to {} ({} steps were skipped)",
                                       options_.min_scale, skipped_);
  refuse(
      "gradients are NaN or infinite {}. Try a lower {}learning rate, or precision "
      "bf16 or fp32",
      where, options_.fixed ? "scale or " : "");
}

void LossScaler::load(const State& state) {
  good_steps_ = state.steps_since_change;
  tolerated_ = state.tolerated;
  if (!options_.fixed) scale_ = std::max(state.scale, options_.min_scale);
}

}  // namespace gradwire
