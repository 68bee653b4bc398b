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

/// A tensor, and which rank writes which of its elements.
struct PlannedTensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<HeldPiece> pieces;  ///< In element order.
};

using SavePlan = std::vector<PlannedTensor>;

/// Describes a rank's pieces to the other ranks.
nlohmann::json describe_pieces(const std::vector<TensorPiece>& pieces);

/// Plans which rank writes what, from all ranks' descriptions; the same on all ranks. Throws
/// Exception(invalid_argument) that names a tensor whose shape or type differs between ranks, or
/// that has an element on no rank.
SavePlan plan_save(const std::vector<nlohmann::json>& described);

/// Writes a rank's file. Returns the file's entries in the manifest, for add_shard().
std::string write_my_shard(Disk& disk, const std::filesystem::path& path, const SavePlan& plan,
                           const CheckpointContent& content, int rank);

/// Adds the file that rank `rank` wrote to the manifest. Call for one rank after the other.
void add_shard(Manifest& manifest, const SavePlan& plan, std::size_t rank,
               const std::string& written);

}  // namespace gradwire
