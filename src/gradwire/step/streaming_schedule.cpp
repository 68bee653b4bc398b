#include "gradwire/step/streaming_schedule.h"

#include <algorithm>
#include <numeric>

namespace gradwire {

StreamingSchedule::StreamingSchedule(const LocalStepsConfig& config)
    : steps_(config.steps), fragments_(config.fragments), overlap_(config.overlap_steps) {
  check_local_steps(config);
}

std::optional<std::size_t> StreamingSchedule::begins_after(std::int64_t step) const {
  if (step < 1) return std::nullopt;
  const auto place = (step - 1) % steps_ + 1;  // 1 .. H.
  for (std::int64_t p = 0; p < fragments_; ++p) {
    if (place == (p + 1) * steps_ / fragments_) return static_cast<std::size_t>(p);
  }
  return std::nullopt;
}

std::optional<std::size_t> StreamingSchedule::ends_after(std::int64_t step) const {
  return begins_after(step - overlap_);
}

std::vector<std::size_t> plan_fragments(const std::vector<std::int64_t>& sizes,
                                        std::int64_t fragments) {
  const auto total =
      std::max<std::int64_t>(1, std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  std::vector<std::size_t> plan;
  std::int64_t before = 0;
  for (const auto size : sizes) {
    // The fragment that contains the parameter's middle.
    const auto place = static_cast<double>(before) + static_cast<double>(size) / 2;
    const auto fragment = static_cast<std::int64_t>(place * static_cast<double>(fragments) /
                                                    static_cast<double>(total));
    plan.push_back(static_cast<std::size_t>(std::clamp<std::int64_t>(fragment, 0, fragments - 1)));
    before += size;
  }
  return plan;
}

}  // namespace gradwire
