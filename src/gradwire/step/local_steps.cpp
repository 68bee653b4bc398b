#include "gradwire/step/local_steps.h"

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, "local_steps: " + message);
}

/// `auto` alternates between averagings with and without the codec: all must have the same bytes.
void check_codec_of(const LocalStepsConfig& config) {
  const auto known = check_codec(config.codec);
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

}  // namespace gradwire
