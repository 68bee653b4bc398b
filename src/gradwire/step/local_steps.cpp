#include "gradwire/step/local_steps.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire::step {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, "local_steps: " + message);
}

/// `auto` alternates between averagings with and without the codec: all must have the same bytes.
void check_codec_of(const LocalStepsConfig& config) {
  const auto known = codec::check_codec(config.codec);
  if (!known) throw Exception(known.error().kind, "local_steps.codec: " + known.error().message);
  if (config.fragments == 1 || !config.codec.starts_with("auto")) return;
  refuse(
      fmt::format("codec \"{}\" cannot be used with {} fragments: it would compare the times of "
                  "different fragments; use a codec without auto, or set fragments to 1",
                  config.codec, config.fragments));
}

}  // namespace

void check_local_steps(const LocalStepsConfig& config) {
  if (config.steps < 1) refuse(fmt::format("steps is {}; it must be positive", config.steps));
  if (config.fragments < 1 || config.fragments > config.steps) {
    refuse(
        fmt::format("{} fragments do not fit into {} steps: at most one averaging can start per "
                    "step; set fragments to at most steps",
                    config.fragments, config.steps));
  }
  const auto apart = config.steps / config.fragments;
  if (config.overlap_steps < 0 || config.overlap_steps >= apart) {
    refuse(
        fmt::format("an averaging starts every {} steps (steps / fragments) and must be complete "
                    "before the next starts; overlap_steps is {}, but must be less than that",
                    apart, config.overlap_steps));
  }
  check_codec_of(config);
}

double hiding_share(const LocalStepsConfig& config) {
  return static_cast<double>(config.fragments * config.overlap_steps) /
         static_cast<double>(config.steps);
}

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

}  // namespace gradwire::step
