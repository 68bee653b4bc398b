#include "gradwire/recipe/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradwire {

double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total,
                            std::int64_t steps_per_epoch) {
  const double warmup = schedule.warmup_epochs * static_cast<double>(steps_per_epoch);
  const auto now = static_cast<double>(step);
  if (now < warmup) return (now + 1) / std::ceil(warmup);
  if (schedule.decay != "cosine") return 1;
  const double rest = std::max(1.0, static_cast<double>(total) - warmup);
  const double done = std::min(1.0, (now - warmup) / rest);
  const double cosine = (1 + std::cos(std::numbers::pi * done)) / 2;
  return schedule.final_fraction + (1 - schedule.final_fraction) * cosine;
}

double scaled_learning_rate(const OptimizerConfig& optimizer, std::int64_t batch_size) {
  if (optimizer.scaling == "none") return optimizer.learning_rate;
  const double times =
      static_cast<double>(batch_size) / static_cast<double>(optimizer.base_batch_size);
  return optimizer.learning_rate * (optimizer.scaling == "sqrt" ? std::sqrt(times) : times);
}

}  // namespace gradwire
