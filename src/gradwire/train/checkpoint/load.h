#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/manifest.h"
#include "gradwire/host/group.h"
#include "gradwire/train/checkpoint/tensor_piece.h"

namespace gradwire {

/// A checkpoint to load, for messages.
struct CheckpointName {
  const std::filesystem::path& path;
  const checkpoint::Manifest& manifest;
};

/// Reads a checkpoint on all ranks of a group; each rank reads the parts it needs. The number of
/// ranks may differ from that at saving. If not all ranks see a file (each host has the files of
/// its own ranks), one that does reads it and broadcasts. All calls are collective. Errors are
/// Exception(invalid_argument), the same on all ranks, and name the rank, the file or tensor, and
/// the remedy.
class CheckpointLoader {
 public:
  /// `path`: as in find_checkpoint(). Verifies the checksum of every file once; the files are
  /// divided among the ranks.
  CheckpointLoader(c10d::ProcessGroup& group, const std::filesystem::path& path);

  const checkpoint::Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& path() const { return path_; }

  /// Returns true if the number of ranks is the same as at saving.
  bool same_ranks() const { return manifest_.ranks() == group_.getSize(); }

  /// Fills the pieces. Every tensor of the checkpoint must be on some rank, and vice versa.
  /// Exception: optimizer states of a parameter that has none in the checkpoint are left unchanged.
  /// Elements are converted between floating types. Returns the number of states left unchanged.
  std::size_t load(const std::vector<TensorPiece>& pieces);

  /// Returns the per-rank tensors that rank `rank` saved, restricted to names that `wanted`
  /// selects.
  std::map<std::string, torch::Tensor> rank_tensors(
      int rank, const std::function<bool(const std::string&)>& wanted);

 private:
  void find_files();
  void verify();
  std::size_t check(const std::vector<TensorPiece>& pieces);
  void read_seen(const std::vector<TensorPiece>& pieces);
  void receive(const std::vector<TensorPiece>& pieces, std::size_t file);
  torch::Tensor chunk_from(std::size_t file, std::uint64_t offset, std::int64_t count,
                           const std::string& type);
  bool all_see(std::size_t file) const { return std::ssize(seen_by_[file]) == group_.getSize(); }

  c10d::ProcessGroup& group_;
  std::filesystem::path path_;
  checkpoint::Manifest manifest_;
  std::map<std::string, const checkpoint::ManifestTensor*> by_name_;
  std::vector<std::optional<checkpoint::InputFile>> files_;  ///< Files that this rank sees.
  std::vector<std::vector<int>> seen_by_;                    ///< Per file: ranks that see it.
};

}  // namespace gradwire
