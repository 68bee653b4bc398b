#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/box_range.h"
#include "gradwire/base/error.h"

namespace gradwire::checkpoint {

/// Name of the manifest in a checkpoint's folder.
inline constexpr const char* kManifestName = "manifest.json";

/// Maximum size of a manifest, in bytes. Suffices for the pieces of about ten thousand tensors,
/// each divided among several hundred ranks.
inline constexpr std::uint64_t kMaxManifestBytes = 256 << 20;

/// A file of a checkpoint, written by one rank.
struct ManifestFile {
  std::string name;         ///< In the checkpoint's folder; not a path.
  std::uint64_t bytes = 0;  ///< Size of the whole file.
  std::uint32_t crc = 0;    ///< CRC-32C of the whole file.
};

/// Consecutive elements of a box of a tensor, and their location.
struct ManifestPiece {
  std::size_t file = 0;      ///< Index into Manifest::files.
  std::int64_t begin = 0;    ///< The first element of the box, in row-major order.
  std::int64_t count = 0;    ///< Number of elements.
  std::uint64_t offset = 0;  ///< In the file, in bytes.
  std::size_t box = 0;       ///< Index into ManifestTensor::boxes.
};

/// Maximum number of boxes of a tensor.
inline constexpr std::size_t kMaxBoxes = 256;

/// A tensor of the model or the optimizer, which all ranks share.
struct ManifestTensor {
  std::string name;
  std::string type;  ///< Type as safetensors names it: "F32".
  std::vector<std::int64_t> shape;
  /// Box after box, in the order of elements; cover all elements without overlap.
  std::vector<ManifestPiece> pieces;
  Shape view = {};              ///< Shape in which boxes are given, with as many elements.
  std::vector<Box> boxes = {};  ///< A partition of the tensor. None: one box of all elements.

  /// Which elements of the tensor a piece has.
  BoxRange range_of(const ManifestPiece& piece) const;
};

/// A tensor that belongs to one rank: its random number state, its error-feedback residual.
struct RankTensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  ///< In the file of that rank, in bytes.
};

/// Content of a checkpoint.
struct Manifest {
  std::int64_t step = 0;
  std::int64_t sequence = 0;  ///< Counts the checkpoints of a folder: the newest has the maximum.
  std::string model = "{}";   ///< JSON description of the model, for users and messages.
  std::string run = "{}";     ///< JSON: state other than tensors, the same on all ranks.
  std::vector<ManifestFile> files;  ///< One for each rank that saved.
  std::vector<ManifestTensor> tensors;
  std::vector<std::vector<RankTensor>> rank_tensors;  ///< One list per file.

  int ranks() const { return static_cast<int>(files.size()); }
};

/// Returns the manifest as JSON, including a checksum of its content.
std::string manifest_text(const Manifest& manifest);

/// Parses untrusted text. A returned manifest is consistent: file names are plain; names of files
/// and of tensors are unique; sizes, shapes and offsets lie within the files; no sum or product of
/// them overflows; the pieces of a tensor are exactly its elements. Does no I/O, so does not check
/// that the files exist. Error: invalid_argument, with the reason: not JSON, another version,
/// damaged.
Result<Manifest> parse_manifest(std::string_view text);

/// The overload above, but throws Exception(invalid_argument), which names `path`, the source of
/// the text, and the remedy.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

}  // namespace gradwire::checkpoint
