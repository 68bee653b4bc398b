#include "gradwire/emulation/zero_gradients.h"

#include <utility>

namespace gradwire {

ZeroGradients::ZeroGradients(const ZeroUnits& units, ShardExchange& exchange, bool keep)
    : units_(units), exchange_(exchange), keep_(keep) {
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    gradients_.push_back({.part = std::vector<float>(units.shards[unit])});
    if (keep) make(unit);
  }
}

void ZeroGradients::make(std::size_t unit) {
  std::span<float>& whole = gradients_[unit].whole;
  if (whole.empty()) whole = pool_.take(units_.count(unit));
}

void ZeroGradients::reduce(std::size_t unit, int priority) {
  Gradient& gradient = gradients_[unit];
  exchange_.start_reduce(unit, {gradient.whole.data(), gradient.whole.size(), DataType::float32},
                         {.data = gradient.part.data(), .count = gradient.part.size()}, priority);
  gradient.in_flight = true;
  in_flight_.push_back(unit);
}

float ZeroGradients::take_part(std::size_t unit) {
  constexpr std::size_t kFloatsPerLine = 16;
  exchange_.wait_reduce(unit);
  Gradient& gradient = gradients_[unit];
  gradient.in_flight = false;
  std::erase(in_flight_, unit);
  if (!keep_) pool_.release(std::exchange(gradient.whole, {}));
  float sum = 0;
  for (std::size_t i = 0; i < gradient.part.size(); i += kFloatsPerLine) sum += gradient.part[i];
  return sum;
}

std::size_t ZeroGradients::peak_bytes() const {
  return units_.bytes() / static_cast<std::size_t>(units_.ranks) + pool_.peak_bytes();
}

}  // namespace gradwire
