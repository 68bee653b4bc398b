#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/group.h"

namespace gradwire {

/// A checkpoint that all ranks of a group read together, each what it needs: as many ranks as saved
/// it or others. Where not all ranks see a file (each host has the files of its own ranks), one
/// that does reads it to the others. All calls are collective. Errors are
/// Exception(invalid_argument), the same on all ranks, and name the rank, the file or tensor, and
/// the remedy.
class CheckpointLoader {
 public:
  /// `path`: as find_checkpoint() takes it. Compares every file with its checksum, once, the ranks
  /// dividing them.
  CheckpointLoader(c10d::ProcessGroup& group, const std::filesystem::path& path);

  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& path() const { return path_; }

  /// Whether as many ranks saved it as load it.
  bool same_ranks() const { return manifest_.ranks() == group_.getSize(); }

  /// Fills the pieces. All tensors of the checkpoint must be on some rank, and the other way round;
  /// but an optimiser's states of a parameter that has none in the checkpoint are left as they
  /// are. Elements are converted between floating types. Returns how many states were left.
  std::size_t load(const std::vector<TensorPiece>& pieces);

  /// What rank `rank` of those that saved had for itself; of that what `wanted` says.
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
  Manifest manifest_;
  std::map<std::string, const ManifestTensor*> by_name_;
  std::vector<std::optional<InputFile>> files_;  ///< Those that this rank sees.
  std::vector<std::vector<int>> seen_by_;        ///< The ranks that see each file.
};

}  // namespace gradwire
