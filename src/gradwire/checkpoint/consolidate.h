#pragma once

#include <cstdint>
#include <filesystem>

#include "gradwire/checkpoint/checkpoint_reader.h"

namespace gradwire {

/// What a tensor of an optimiser is called: "optimizer.exp_avg.0.weight".
inline constexpr const char* kOptimizerPrefix = "optimizer.";

struct Consolidation {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  ///< Of the file.
};

/// Writes a checkpoint as one safetensors file: the model's tensors, by the names that it has in
/// PyTorch's state_dict; with `optimizer`, its states too, as "optimizer.STATE.PARAMETER". Needs
/// little memory, whatever the size. The file appears whole or not at all. Throws Exception, before
/// anything is written if a file of the checkpoint is damaged.
Consolidation consolidate(const CheckpointReader& checkpoint, const std::filesystem::path& output,
                          bool optimizer);

}  // namespace gradwire
