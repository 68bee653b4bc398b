#include "gradwire/train/checkpoint/save_plan.h"

#include <map>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/shard_file.h"
#include "gradwire/train/checkpoint/stored_types.h"

namespace gradwire {
namespace {

using nlohmann::json;

/// A tensor as described by the ranks.
struct Described {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  bool common = true;
  std::vector<HeldPiece> held;
};

void add(std::vector<Described>& tensors, std::unordered_map<std::string, std::size_t>& by_name,
         const json& piece, int rank) {
  const auto name = piece[0].get<std::string>();
  const auto [at, is_new] = by_name.emplace(name, tensors.size());
  if (is_new) {
    tensors.push_back({name, piece[1].get<std::string>(), piece[2].get<std::vector<std::int64_t>>(),
                       piece[5].get<bool>()});
  }
  auto& tensor = tensors[at->second];
  if (tensor.type != piece[1].get<std::string>() ||
      tensor.shape != piece[2].get<std::vector<std::int64_t>>()) {
    refuse(fmt::format("checkpoint: '{}' is {} {} on rank {} and {} {} on rank {}", name,
                       tensor.type, json(tensor.shape).dump(), tensor.held.front().rank,
                       piece[1].get<std::string>(), piece[2].dump(), rank));
  }
  // If replicas differ, the first rank's is saved.
  if (!tensor.common && !tensor.held.empty() && tensor.held.front().rank != rank) return;
  tensor.held.push_back({rank, piece[3].get<std::int64_t>(), piece[4].get<std::int64_t>()});
}

/// Name of a piece in a rank's file.
std::string key_of(const std::string& name, std::int64_t begin) {
  return fmt::format("{}@{}", name, begin);
}

/// Returns the elements of `wanted` from this rank's pieces.
torch::Tensor elements(const std::vector<const TensorPiece*>& pieces, const HeldPiece& wanted) {
  for (const auto* piece : pieces) {
    const auto first = wanted.begin - piece->begin;
    if (first < 0 || first + wanted.count > piece->data.numel()) continue;
    return piece->data.narrow(0, first, wanted.count);
  }
  // The plan is based on the described pieces.
  refuse("checkpoint: a piece has moved during the save");
}

/// Returns the tensors that this rank writes, by their names in its file.
std::map<std::string, torch::Tensor> my_tensors(const SavePlan& plan,
                                                const CheckpointContent& content, int rank) {
  std::unordered_map<std::string, std::vector<const TensorPiece*>> mine;
  for (const auto& piece : content.pieces) mine[piece.name].push_back(&piece);
  std::map<std::string, torch::Tensor> tensors;
  for (const auto& tensor : plan) {
    for (const auto& piece : tensor.pieces) {
      if (piece.rank != rank) continue;
      tensors[key_of(tensor.name, piece.begin)] = elements(mine[tensor.name], piece);
    }
  }
  for (const auto& [name, tensor] : content.rank_tensors) tensors["rank:" + name] = tensor;
  return tensors;
}

std::string written_text(const ManifestFile& file, const SafetensorsHeader& header) {
  json offsets = json::object();
  json own = json::array();
  for (const auto& tensor : header.tensors) {
    const auto offset = header.data_begin + tensor.begin;
    if (tensor.name.starts_with("rank:")) {
      own.push_back({tensor.name.substr(5), tensor.type, tensor.shape, offset});
    } else {
      offsets[tensor.name] = offset;
    }
  }
  return json{{"name", file.name},
              {"bytes", file.bytes},
              {"crc", file.crc},
              {"offsets", std::move(offsets)},
              {"own", std::move(own)}}
      .dump();
}

}  // namespace

json describe_pieces(const std::vector<TensorPiece>& pieces) {
  json list = json::array();
  for (const auto& piece : pieces) {
    list.push_back({piece.name, safetensors_type_name(piece.data.scalar_type()), piece.shape,
                    piece.begin, piece.data.numel(), piece.common});
  }
  return list;
}

SavePlan plan_save(const std::vector<json>& described) {
  std::vector<Described> tensors;
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t rank = 0; rank < described.size(); ++rank) {
    for (const auto& piece : described[rank]) add(tensors, by_name, piece, static_cast<int>(rank));
  }
  SavePlan plan;
  std::vector<std::uint64_t> load(described.size(), 0);
  for (auto& tensor : tensors) {
    auto pieces = plan_pieces(tensor.name, elements_of(tensor.shape),
                              stored_type_bytes(tensor.type), tensor.held, load);
    plan.push_back({std::move(tensor.name), std::move(tensor.type), std::move(tensor.shape),
                    std::move(pieces)});
  }
  return plan;
}

std::string write_my_shard(Disk& disk, const std::filesystem::path& path, const SavePlan& plan,
                           const CheckpointContent& content, int rank) {
  const auto tensors = my_tensors(plan, content, rank);
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) {
    stored.push_back({.name = name,
                      .type = safetensors_type_name(tensor.scalar_type()),
                      .shape = tensor.sizes().vec()});
  }
  const auto header = lay_out_safetensors(std::move(stored), {{"format", "pt"}});
  torch::Tensor current;  // At most one copy at a time.
  const auto file = write_shard(disk, path, header, [&](const std::string& name) -> ConstBytes {
    current = tensors.at(name).detach().to(torch::kCPU).contiguous();
    return bytes_of(current);
  });
  return written_text(file, header);
}

void add_shard(Manifest& manifest, const SavePlan& plan, std::size_t rank,
               const std::string& written) {
  const auto text = json::parse(written);
  manifest.files.push_back({text["name"].get<std::string>(), text["bytes"].get<std::uint64_t>(),
                            text["crc"].get<std::uint32_t>()});
  auto& own = manifest.rank_tensors.emplace_back();
  for (const auto& entry : text["own"]) {
    own.push_back({entry[0].get<std::string>(), entry[1].get<std::string>(),
                   entry[2].get<std::vector<std::int64_t>>(), entry[3].get<std::uint64_t>()});
  }
  if (manifest.tensors.empty()) {
    for (const auto& tensor : plan) {
      manifest.tensors.push_back({tensor.name, tensor.type, tensor.shape, {}});
      for (const auto& piece : tensor.pieces) {
        manifest.tensors.back().pieces.push_back(
            {static_cast<std::size_t>(piece.rank), piece.begin, piece.count, 0});
      }
    }
  }
  for (auto& tensor : manifest.tensors) {
    for (auto& piece : tensor.pieces) {
      if (piece.file != rank) continue;
      piece.offset = text["offsets"].at(key_of(tensor.name, piece.begin)).get<std::uint64_t>();
    }
  }
}

}  // namespace gradwire
