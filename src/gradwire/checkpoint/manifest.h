#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire {

/// The manifest's name in a checkpoint's folder.
inline constexpr const char* kManifestName = "manifest.json";

/// A manifest has at most so many bytes: for the pieces of some ten thousand tensors, each divided
/// among several hundred ranks.
inline constexpr std::uint64_t kMostManifestBytes = 256 << 20;

/// A file of a checkpoint: what one rank wrote.
struct ManifestFile {
  std::string name;         ///< In the checkpoint's folder: no path.
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

/// Takes the text for hostile: what comes of it is consistent. Names of files are plain, and no
/// file or tensor has the name of another; sizes, shapes and offsets lie within the files, and no
/// sum or product of them overflows; the pieces of a tensor are its elements. Whether the files are
/// there is another question. Touches no disk. Error: invalid_argument, with what is wrong: no
/// JSON, another version, damaged.
Result<Manifest> parse_manifest(std::string_view text);

/// The same. Throws Exception(invalid_argument), which names `path`, where the text came from, and
/// the remedy.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

}  // namespace gradwire
