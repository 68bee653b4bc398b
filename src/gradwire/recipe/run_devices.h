#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Returns the devices of this process, the CPU if the configuration names none. Throws
/// Exception(unsupported) for one that this libtorch or machine does not have.
std::vector<torch::Device> devices_of(const TrainConfig& config);

/// A line for `--dry-run`; empty if the configuration names no devices.
std::string devices_text(const TrainConfig& config);

}  // namespace gradwire::recipe
