#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/manifest.h"
#include "gradwire/checkpoint/piece_plan.h"
#include "gradwire/train/checkpoint/save.h"

namespace gradwire {

/// A tensor, and who writes which of its elements.
struct PlannedTensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<HeldPiece> pieces;  ///< In the order of elements.
};

using SavePlan = std::vector<PlannedTensor>;

/// What a rank tells the others about its pieces.
nlohmann::json describe_pieces(const std::vector<TensorPiece>& pieces);

/// Who writes what, from what each rank has told; the same on all ranks. Throws
/// Exception(invalid_argument) that names a tensor of which ranks differ in shape or type, or some
/// element of which is on no rank.
SavePlan plan_save(const std::vector<nlohmann::json>& described);

/// Writes a rank's file; returns what the manifest must say of it, for add_shard().
std::string write_my_shard(Disk& disk, const std::filesystem::path& path, const SavePlan& plan,
                           const CheckpointContent& content, int rank);

/// Puts into the manifest what rank `rank` has written. To be called for one rank after the other.
void add_shard(Manifest& manifest, const SavePlan& plan, std::size_t rank,
               const std::string& written);

}  // namespace gradwire
