#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gradwire/checkpoint/checkpoint_reader.h"

namespace gradwire::checkpoint {

/// Prefix of an optimizer's tensors: "optimizer.exp_avg.0.weight".
inline constexpr const char* kOptimizerPrefix = "optimizer.";

/// Returns those of a checkpoint's tensor names that are states of an optimizer:
/// "optimizer.STATE.PARAMETER" for a parameter of the model. A layer may be called `optimizer` too:
/// "optimizer.weight", whose own state is "optimizer.STATE.optimizer.weight".
std::set<std::string> optimizer_states(std::vector<std::string> names);

struct Consolidation {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  ///< Size of the file.
};

/// Writes a checkpoint as one safetensors file: the model's tensors, named as in PyTorch's
/// state_dict. With `optimizer`, also the optimizer's states, as "optimizer.STATE.PARAMETER".
/// Memory use does not depend on the size of the checkpoint. The file appears complete or not at
/// all. Throws Exception; if a file of the checkpoint is damaged, before anything is written.
Consolidation consolidate(const CheckpointReader& checkpoint, const std::filesystem::path& output,
                          bool optimizer);

}  // namespace gradwire::checkpoint
