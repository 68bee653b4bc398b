#include "gradwire/recipe/local_sgd_config.h"

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;

}  // namespace

LocalStepsConfig read_local_steps(JsonObject json) {
  LocalStepsConfig config;
  config.steps = json.integer("steps", 0, 0, kMany);  // 0: the key is absent.
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
    if (config != LocalStepsConfig{}) {
      throw Exception(ErrorKind::invalid_argument,
                      "local_steps.steps is missing: the number of steps between two averagings");
    }
  }
  check_local_steps(config);
  return config;
}

}  // namespace gradwire
