#pragma once

#include "gradwire/base/json_fields.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Reads "hogwild" of a configuration. Throws Exception(invalid_argument) as parse_train_config().
HogwildConfig read_hogwild(JsonFields json);

/// Throws Exception(invalid_argument) for settings that threads which share parameters do not have.
/// `root`: the whole configuration.
void check_hogwild(JsonFields& root, const TrainConfig& config);

/// Samples of a batch of each of `threads` threads. Throws Exception(invalid_argument) if the
/// configured batch cannot be divided by them, or if there is more than one rank.
std::int64_t batch_size_per_thread(const TrainConfig& config, int threads, int ranks);

}  // namespace gradwire::recipe
