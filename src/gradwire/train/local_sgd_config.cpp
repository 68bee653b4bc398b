#include "gradwire/train/local_sgd_config.h"

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;

[[noreturn]] void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, "local_steps: " + message);
}

/// `auto` times the averagings one way and the other by turns: they must be of the same bytes.
void check_codec_of(const LocalStepsConfig& config) {
  const auto known = check_codec(config.codec);
  if (!known) throw Exception(known.error().kind, "local_steps.codec: " + known.error().message);
  if (config.fragments == 1 || !config.codec.starts_with("auto")) return;
  refuse(
      fmt::format("codec \"{}\" does not go together with {} fragments, for it would compare one "
                  "fragment's time with another's; name a codec without auto, or make fragments 1",
                  config.codec, config.fragments));
}

}  // namespace

LocalStepsConfig read_local_steps(JsonObject json) {
  LocalStepsConfig config;
  config.steps = json.integer("steps", 0, 0, kMany);  // 0: the key is not there.
  config.outer_learning_rate = json.number("outer_learning_rate", 1, 0, 1e6);
  config.outer_momentum = json.number("outer_momentum", 0, 0, 1);
  config.fragments = json.integer("fragments", 1, 1, kMany);
  config.overlap_steps = json.integer("overlap_steps", 0, 0, kMany);
  config.mixing = json.number("mixing", config.overlap_steps > 0 ? 0.5 : 0, 0, 1);
  config.codec = json.text("codec", config.codec);
  json.refuse_unknown();
  config.enabled = config.steps > 0;
  if (!config.enabled) {
    config.steps = 1;
    if (config != LocalStepsConfig{}) refuse("steps is missing: after how many to average");
  }
  check_local_steps(config);
  return config;
}

void check_local_steps(const LocalStepsConfig& config) {
  if (config.steps < 1) refuse(fmt::format("steps is {}; it must be positive", config.steps));
  if (config.fragments < 1 || config.fragments > config.steps) {
    refuse(
        fmt::format("{} fragments do not fit into {} steps, for they are averaged one after the "
                    "other; make fragments at most steps",
                    config.fragments, config.steps));
  }
  const auto apart = config.steps / config.fragments;
  if (config.overlap_steps < 0 || config.overlap_steps >= apart) {
    refuse(
        fmt::format("an average begins every {} steps (steps / fragments) and must be over "
                    "before the next begins; make overlap_steps, {}, less than that",
                    apart, config.overlap_steps));
  }
  check_codec_of(config);
}

}  // namespace gradwire
