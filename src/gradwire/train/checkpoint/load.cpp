#include "gradwire/train/checkpoint/load.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "gradwire/torch/safetensors_types.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/checkpoint/safetensors.h"

namespace gradwire {
namespace {

std::string state_of(const std::string& name) {
  const auto begin = std::string_view(checkpoint::kOptimizerPrefix).size();
  return name.substr(begin, name.find('.', begin) - begin);
}

/// Returns the names of a parameter's states in the checkpoint.
std::vector<std::string> states_in(const checkpoint::Manifest& manifest,
                                   const std::string& parameter) {
  std::vector<std::string> states;
  for (const auto& tensor : manifest.tensors) {
    if (!tensor.name.starts_with(checkpoint::kOptimizerPrefix)) continue;
    if (parameter_of(tensor.name) == parameter) states.push_back(state_of(tensor.name));
  }
  return states;
}

std::string another_model(const CheckpointName& checkpoint) {
  return fmt::format(
      "{} is of another model ({}): configure the model as it was saved, or use another checkpoint",
      checkpoint.path.string(), checkpoint.manifest.model);
}

std::string another_optimizer(const CheckpointName& checkpoint) {
  return fmt::format(
      "{} is of a run with another optimizer or other local steps: configure both as they were "
      "saved",
      checkpoint.path.string());
}

std::string file_of(const checkpoint::ManifestTensor& tensor,
                    const checkpoint::Manifest& manifest) {
  return tensor.pieces.empty() ? checkpoint::kManifestName
                               : manifest.files[tensor.pieces[0].file].name;
}

/// Returns the stored tensor that `piece` is to be loaded from; null for an optimizer state of a
/// parameter that has none in the checkpoint. Throws Exception(invalid_argument) that names the
/// tensor, the file, both shapes or types, and what to do: another model, another optimizer.
const checkpoint::ManifestTensor* source_of(
    const TensorPiece& piece, const CheckpointName& checkpoint,
    const std::map<std::string, const checkpoint::ManifestTensor*>& by_name) {
  const auto found = by_name.find(piece.name);
  if (found == by_name.end()) {
    if (by_name.contains(piece.name + kMadeIds)) {
      refuse(
          "{} has of '{}' the rows that servers had made, and in this run the table is whole: set "
          "servers.embeddings, as the run that saved it did",
          checkpoint.path.string(), piece.name);
    }
    if (!piece.is_state) {
      refuse("'{}' [{}] of this run's model is not in {}; {}", piece.name,
             fmt::join(piece.shape, ", "), checkpoint.path.string(), another_model(checkpoint));
    }
    const auto states = states_in(checkpoint.manifest, parameter_of(piece.name));
    if (states.empty()) return nullptr;
    refuse("'{}' of '{}' is not in {}, which has {} of it; {}", state_of(piece.name),
           parameter_of(piece.name), checkpoint.path.string(), fmt::join(states, ", "),
           another_optimizer(checkpoint));
  }
  const auto& tensor = *found->second;
  if (tensor.shape != piece.shape) {
    refuse("'{}' has shape [{}] in {} and [{}] in this run; {}", piece.name,
           fmt::join(tensor.shape, ", "),
           (checkpoint.path / file_of(tensor, checkpoint.manifest)).string(),
           fmt::join(piece.shape, ", "), another_model(checkpoint));
  }
  const auto stored = safetensors_type(tensor.type);
  const auto wanted = piece.data.scalar_type();
  if (stored == wanted || (c10::isFloatingType(stored) && c10::isFloatingType(wanted))) {
    return &tensor;
  }
  refuse("'{}' has elements of {} in {} and of {} in this run; {}", piece.name, tensor.type,
         checkpoint.path.string(), safetensors_type_name(wanted), another_model(checkpoint));
}

/// Throws Exception(invalid_argument) for a tensor of the checkpoint that no rank has.
void refuse_unused(const checkpoint::ManifestTensor& tensor, const CheckpointName& checkpoint) {
  const auto where = (checkpoint.path / file_of(tensor, checkpoint.manifest)).string();
  if (tensor.name.starts_with(checkpoint::kOptimizerPrefix)) {
    refuse("'{}' of '{}' in {} does not exist in this run; {}", state_of(tensor.name),
           parameter_of(tensor.name), where, another_optimizer(checkpoint));
  }
  refuse("'{}' [{}] in {} is not in this run's model; {}", tensor.name,
         fmt::join(tensor.shape, ", "), where, another_model(checkpoint));
}

constexpr std::int64_t kChunkElements = 1 << 20;

}  // namespace

CheckpointLoader::CheckpointLoader(c10d::ProcessGroup& group, const std::filesystem::path& path)
    : group_(group) {
  std::string text;
  const auto from_there = collective_try(group_, [&]() -> std::string {
    if (group_.getRank() != 0) return "";
    const auto found = checkpoint::find_checkpoint(path);
    text = checkpoint::manifest_text(checkpoint::read_manifest(found));
    return found.lexically_relative(path).string();
  })[0];
  path_ = (path / from_there).lexically_normal();
  manifest_ =
      checkpoint::parse_manifest(broadcast_text(group_, text), path_ / checkpoint::kManifestName);
  for (const auto& tensor : manifest_.tensors) by_name_[tensor.name] = &tensor;
  find_files();
  verify();
}

void CheckpointLoader::find_files() {
  const auto texts = collective_try(group_, [this] {
    std::string seen;
    for (const auto& file : manifest_.files) {
      std::error_code unreadable;  // InputFile reports the error.
      const bool here = std::filesystem::exists(path_ / file.name, unreadable) || unreadable;
      files_.push_back(here ? std::optional(checkpoint::open_shard(path_, file)) : std::nullopt);
      seen += here ? '1' : '0';
    }
    return seen;
  });
  seen_by_.resize(manifest_.files.size());
  for (std::size_t f = 0; f < seen_by_.size(); ++f) {
    for (std::size_t r = 0; r < texts.size(); ++r) {
      if (texts[r][f] == '1') seen_by_[f].push_back(static_cast<int>(r));
    }
    if (!seen_by_[f].empty()) continue;
    refuse(
        "{}: no rank sees this file, which is part of the checkpoint of {} "
        "ranks; restore it, or use another checkpoint",
        (path_ / manifest_.files[f].name).string(), manifest_.ranks());
  }
}

void CheckpointLoader::verify() {
  collective_try(group_, [this] {
    for (std::size_t f = 0; f < files_.size(); ++f) {
      const auto& ranks = seen_by_[f];
      if (ranks[f % ranks.size()] != group_.getRank()) continue;
      checkpoint::verify_shard(*files_[f], manifest_.files[f]);
    }
    return "";
  });
}

std::size_t CheckpointLoader::check(const std::vector<TensorPiece>& pieces) {
  const CheckpointName name{path_, manifest_};
  std::size_t left = 0;
  const auto texts = collective_try(group_, [&] {
    std::map<std::string, bool> mine;
    for (const auto& piece : pieces) {
      const auto* source = source_of(piece, name, by_name_);
      if (source == nullptr) ++left;
      mine[piece.name] = true;
    }
    std::string here;
    for (const auto& tensor : manifest_.tensors) here += mine.contains(tensor.name) ? '1' : '0';
    return here;
  });
  for (std::size_t t = 0; t < manifest_.tensors.size(); ++t) {
    const bool wanted =
        std::ranges::any_of(texts, [t](const auto& text) { return text[t] == '1'; });
    if (!wanted) refuse_unused(manifest_.tensors[t], name);
  }
  return left;
}

std::size_t CheckpointLoader::load(const std::vector<TensorPiece>& pieces) {
  const torch::NoGradGuard no_grad;
  const auto left = check(pieces);
  collective_try(group_, [&] {
    read_seen(pieces);
    return "";
  });
  for (std::size_t f = 0; f < files_.size(); ++f) {
    if (!all_see(f)) receive(pieces, f);
  }
  return left;
}

void CheckpointLoader::read_seen(const std::vector<TensorPiece>& pieces) {
  for (const auto& piece : pieces) {
    const auto found = by_name_.find(piece.name);
    if (found == by_name_.end()) continue;
    const auto size = checkpoint::stored_type_bytes(found->second->type);
    const auto type = safetensors_type(found->second->type);
    for (const auto& part : checkpoint::overlaps(*found->second, piece.range())) {
      if (!all_see(part.file)) continue;
      for (std::int64_t at = 0; at < part.count; at += kChunkElements) {
        const auto chunk = torch::empty({std::min(kChunkElements, part.count - at)}, type);
        files_[part.file]->read(part.offset + static_cast<std::uint64_t>(at) * size,
                                bytes_of(chunk));
        piece.data.detach().narrow(0, part.begin + at, chunk.numel()).copy_(chunk);
      }
    }
  }
}

/// Returns elements stored in a file, broadcast from one rank that sees it.
torch::Tensor CheckpointLoader::chunk_from(std::size_t file, std::uint64_t offset,
                                           std::int64_t count, const std::string& type) {
  const int root = seen_by_[file].front();
  auto chunk = torch::empty({count}, safetensors_type(type));
  if (group_.getRank() == root) {
    try {
      files_[file]->read(offset, bytes_of(chunk));
    } catch (const std::exception& error) {
      abort_group(group_, error.what());  // The other ranks wait for it.
      throw;
    }
  }
  if (group_.getSize() > 1) broadcast_tensors(group_, {{"chunk", chunk}}, root);
  return chunk;
}

void CheckpointLoader::receive(const std::vector<TensorPiece>& pieces, std::size_t file) {
  std::map<std::string, std::vector<const TensorPiece*>> mine;
  for (const auto& piece : pieces) mine[piece.name].push_back(&piece);
  for (const auto& tensor : manifest_.tensors) {
    const auto size = checkpoint::stored_type_bytes(tensor.type);
    for (const auto& part : tensor.pieces) {
      if (part.file != file) continue;
      for (std::int64_t at = 0; at < part.count; at += kChunkElements) {
        const auto chunk = chunk_from(file, part.offset + static_cast<std::uint64_t>(at) * size,
                                      std::min(kChunkElements, part.count - at), tensor.type);
        BoxRange range = tensor.range_of(part);
        range.begin += at;
        range.count = chunk.numel();
        for (const auto* piece : mine[tensor.name]) {
          copy_shared(range, chunk, piece->range(), piece->data.detach());
        }
      }
    }
  }
}

std::map<std::string, torch::Tensor> CheckpointLoader::rank_tensors(
    int rank, const std::function<bool(const std::string&)>& wanted) {
  std::map<std::string, torch::Tensor> tensors;
  const auto take = [&](std::size_t file, const checkpoint::RankTensor& tensor, const auto& read) {
    if (!wanted(tensor.name)) return;
    const auto flat = read(checkpoint::elements_of(tensor.shape));
    if (static_cast<int>(file) == rank) tensors[tensor.name] = flat.view(tensor.shape);
  };
  collective_try(group_, [&] {
    const auto file = static_cast<std::size_t>(rank);
    if (!all_see(file)) return "";
    for (const auto& tensor : manifest_.rank_tensors[file]) {
      take(file, tensor, [&](std::int64_t count) {
        auto flat = torch::empty({count}, safetensors_type(tensor.type));
        files_[file]->read(tensor.offset, bytes_of(flat));
        return flat;
      });
    }
    return "";
  });
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (all_see(file)) continue;
    for (const auto& tensor : manifest_.rank_tensors[file]) {
      take(file, tensor,
           [&](std::int64_t count) { return chunk_from(file, tensor.offset, count, tensor.type); });
    }
  }
  return tensors;
}

}  // namespace gradwire
