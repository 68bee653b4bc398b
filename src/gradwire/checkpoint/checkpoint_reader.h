#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/checkpoint/input_file.h"
#include "gradwire/checkpoint/manifest.h"

namespace gradwire {

/// Opens a checkpoint's file, whose size the manifest has. Throws Exception(invalid_argument) that
/// names the file and the remedy, if it is not there or has another size.
InputFile open_shard(const std::filesystem::path& checkpoint, const ManifestFile& file);

/// Reads the whole file. Throws Exception(invalid_argument) if it is not what was written.
void verify_shard(const InputFile& file, const ManifestFile& expected);

/// A part of a piece of a tensor: where it lies, and which of the wanted elements it has.
struct PieceOverlap {
  std::size_t file = 0;
  std::uint64_t offset = 0;  ///< In the file, in bytes.
  std::int64_t begin = 0;    ///< Relative to the first element that is wanted.
  std::int64_t count = 0;
};

/// Where elements `begin` to `begin + count` of a tensor lie; in the order of elements.
std::vector<PieceOverlap> overlaps(const ManifestTensor& tensor, std::int64_t begin,
                                   std::int64_t count);

/// A checkpoint all of whose files are in a folder here.
class CheckpointReader {
 public:
  /// Throws Exception(invalid_argument), as the functions above.
  explicit CheckpointReader(const std::filesystem::path& checkpoint);

  const Manifest& manifest() const { return manifest_; }

  /// Compares all files with their checksums. Throws Exception(invalid_argument).
  void verify() const;

  /// Fills `into` with the elements of a tensor of the manifest from `begin` on.
  void read(const ManifestTensor& tensor, std::int64_t begin, Bytes into) const;

 private:
  Manifest manifest_;
  std::vector<InputFile> files_;
};

}  // namespace gradwire
