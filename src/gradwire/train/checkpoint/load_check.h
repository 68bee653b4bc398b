#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/checkpoint/manifest.h"
#include "gradwire/train/checkpoint/tensor_piece.h"

namespace gradwire {

/// A checkpoint to load, for messages.
struct CheckpointName {
  const std::filesystem::path& path;
  const Manifest& manifest;
};

/// Returns the stored tensor that `piece` is to be loaded from; null for an optimizer state of a
/// parameter that has none in the checkpoint. Throws Exception(invalid_argument) that names the
/// tensor, the file, both shapes or types, and what to do: another model, another optimizer.
const ManifestTensor* source_of(const TensorPiece& piece, const CheckpointName& checkpoint,
                                const std::map<std::string, const ManifestTensor*>& by_name);

/// Throws Exception(invalid_argument) for a tensor of the checkpoint that no rank has.
[[noreturn]] void refuse_unused(const ManifestTensor& tensor, const CheckpointName& checkpoint);

}  // namespace gradwire
