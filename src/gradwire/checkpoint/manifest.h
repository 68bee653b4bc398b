#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradwire {

/// The manifest's name in a checkpoint's folder.
inline constexpr const char* kManifestName = "manifest.json";

/// A file of a checkpoint: what one rank wrote.
struct ManifestFile {
  std::string name;         ///< In the checkpoint's folder.
  std::uint64_t bytes = 0;  ///< Of the whole file.
  std::uint32_t crc = 0;    ///< CRC-32C of the whole file.
};

/// Consecutive elements of a tensor, and where they lie.
struct ManifestPiece {
  std::size_t file = 0;      ///< Index into Manifest::files.
  std::int64_t begin = 0;    ///< The first element, in row-major order.
  std::int64_t count = 0;    ///< Elements.
  std::uint64_t offset = 0;  ///< In the file, in bytes.
};

/// A tensor that all ranks had together: of the model, or of its optimiser.
struct ManifestTensor {
  std::string name;
  std::string type;  ///< As safetensors names it: "F32".
  std::vector<std::int64_t> shape;
  std::vector<ManifestPiece> pieces;  ///< In the order of elements; together all, none twice.
};

/// A tensor that a rank had for itself: its random numbers, its error feedback.
struct RankTensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  ///< In the file of that rank, in bytes.
};

/// What a checkpoint consists of.
struct Manifest {
  std::int64_t step = 0;
  std::int64_t sequence = 0;  ///< Counts the checkpoints of a folder: the newest has the greatest.
  std::string model = "{}";   ///< JSON, for people and messages: what the model is.
  std::string run = "{}";     ///< JSON: what is the same on all ranks and no tensor.
  std::vector<ManifestFile> files;  ///< One for each rank that saved.
  std::vector<ManifestTensor> tensors;
  std::vector<std::vector<RankTensor>> rank_tensors;  ///< For each file.

  int ranks() const { return static_cast<int>(files.size()); }
};

/// The manifest as JSON, with a checksum of itself.
std::string manifest_text(const Manifest& manifest);

/// Throws Exception(invalid_argument) that names `path` (where the text came from) and what is
/// wrong with it: no JSON, another version, damaged, pieces that do not make up a tensor.
Manifest parse_manifest(const std::string& text, const std::filesystem::path& path);

}  // namespace gradwire
