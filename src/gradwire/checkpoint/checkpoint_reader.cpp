#include "gradwire/checkpoint/checkpoint_reader.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/safetensors_header.h"

namespace gradwire::checkpoint {

InputFile open_shard(const std::filesystem::path& checkpoint, const ManifestFile& file) {
  InputFile opened(checkpoint / file.name);
  if (opened.size() == file.bytes) return opened;
  refuse("{}: is damaged: {} bytes where {} were written; use another checkpoint",
         opened.path().string(), opened.size(), file.bytes);
}

void verify_shard(const InputFile& file, const ManifestFile& expected) {
  const auto crc = file.checksum();
  if (crc == expected.crc) return;
  refuse(
      "{}: is damaged: its CRC-32C is {:08x} and was {:08x} when it was written; use another "
      "checkpoint",
      file.path().string(), crc, expected.crc);
}

std::vector<PieceOverlap> overlaps(const ManifestTensor& tensor, const BoxRange& wanted) {
  const auto size = stored_type_bytes(tensor.type);
  std::vector<PieceOverlap> found;
  for (const auto& piece : tensor.pieces) {
    for (const SharedRun& run : shared_runs(tensor.range_of(piece), wanted)) {
      found.push_back({.file = piece.file,
                       .offset = piece.offset + static_cast<std::uint64_t>(run.in_first) * size,
                       .begin = run.in_second,
                       .count = run.count});
    }
  }
  return found;
}

CheckpointReader::CheckpointReader(const std::filesystem::path& checkpoint)
    : manifest_(read_manifest(checkpoint)) {
  for (const auto& file : manifest_.files) files_.push_back(open_shard(checkpoint, file));
}

void CheckpointReader::verify() const {
  for (std::size_t i = 0; i < files_.size(); ++i) verify_shard(files_[i], manifest_.files[i]);
}

void CheckpointReader::read(const ManifestTensor& tensor, std::int64_t begin, Bytes into) const {
  const auto size = stored_type_bytes(tensor.type);
  const auto count = static_cast<std::int64_t>(into.size() / size);
  for (const auto& part : overlaps(tensor, {whole_part(tensor.shape), begin, count})) {
    files_[part.file].read(part.offset, into.subspan(static_cast<std::size_t>(part.begin) * size,
                                                     static_cast<std::size_t>(part.count) * size));
  }
}

}  // namespace gradwire::checkpoint
