#pragma once

#include <string>

#include "gradwire/recipe/train_config.h"
#include "gradwire/recipe/trainer.h"

namespace gradwire::recipe {

/// Trains by threads of this process that share the parameters (train/hogwild/hogwild.h). The
/// threads take batches of batch_size / threads samples from the epoch's permutation when they need
/// them, each sample once an epoch, and wait for each other at the end of an epoch. The result is
/// reproducible with one thread only. Throws Exception.
TrainingResult train_hogwild(const TrainConfig& config, const TrainerContext& context);

/// The number of threads of a run. Throws Exception(invalid_argument) if they or their batches do
/// not fit, or if there is more than one rank.
int hogwild_threads(const TrainConfig& config, int ranks);

/// A line for `--dry-run`; empty without Hogwild.
std::string hogwild_text(const TrainConfig& config, int ranks);

}  // namespace gradwire::recipe
