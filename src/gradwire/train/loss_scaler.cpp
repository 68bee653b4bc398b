#include "gradwire/train/loss_scaler.h"

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {

void LossScaler::update(bool finite) {
  if (finite) {
    if (++good_steps_ < options_.growth_interval) return;
    scale_ *= options_.growth;
  } else {
    ++skipped_;
    scale_ *= options_.backoff;
  }
  good_steps_ = 0;
  if (scale_ >= options_.least) return;
  throw Exception(ErrorKind::invalid_argument,
                  fmt::format("gradients are NaN or infinite at any loss scale ({} steps were "
                              "skipped). Try a lower learning rate, or precision bf16 or fp32",
                              skipped_));
}

void LossScaler::load(const State& state) {
  scale_ = state.scale;
  good_steps_ = state.steps_since_change;
}

}  // namespace gradwire
