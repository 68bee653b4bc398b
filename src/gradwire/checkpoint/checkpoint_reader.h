#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/checkpoint/input_file.h"
#include "gradwire/checkpoint/manifest.h"

namespace gradwire::checkpoint {

/// Opens a file of a checkpoint. Throws Exception(invalid_argument), which names the file and the
/// remedy, if it is missing or its size differs from the manifest's.
InputFile open_shard(const std::filesystem::path& checkpoint, const ManifestFile& file);

/// Reads the whole file. Throws Exception(invalid_argument) if its checksum differs from the
/// manifest's.
void verify_shard(const InputFile& file, const ManifestFile& expected);

/// Elements of a stored piece that were requested, consecutive in the file.
struct PieceOverlap {
  std::size_t file = 0;
  std::uint64_t offset = 0;  ///< In the file, in bytes.
  std::int64_t begin = 0;    ///< Relative to the first requested element.
  std::int64_t count = 0;
};

/// Returns where the elements of `wanted` are stored; all of them, each once.
std::vector<PieceOverlap> overlaps(const ManifestTensor& tensor, const BoxRange& wanted);

/// Reads a checkpoint of which all files are in one local folder.
class CheckpointReader {
 public:
  /// Opens all files. Throws Exception(invalid_argument), as the functions above.
  explicit CheckpointReader(const std::filesystem::path& checkpoint);

  const Manifest& manifest() const { return manifest_; }

  /// Compares the checksum of every file with the manifest's. Throws Exception(invalid_argument).
  void verify() const;

  /// Fills `into` with elements of a tensor of the manifest, starting at element `begin`.
  void read(const ManifestTensor& tensor, std::int64_t begin, Bytes into) const;

 private:
  Manifest manifest_;
  std::vector<InputFile> files_;
};

}  // namespace gradwire::checkpoint
