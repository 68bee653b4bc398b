#include "gradwire/train/checkpoint/save.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/shard_file.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/checkpoint/safetensors.h"

namespace gradwire {
namespace {

/// A box of a tensor, and which rank writes which of its elements.
struct PlannedBox {
  Box box;
  std::vector<checkpoint::HeldPiece> pieces;  ///< In element order.
};

struct PlannedTensor {
  std::string name;
  std::string type;
  Shape shape;
  Shape view;                     ///< Shape in which boxes are given.
  std::vector<PlannedBox> boxes;  ///< A partition of the tensor.

  bool is_whole() const { return boxes.size() == 1 && boxes[0].box == whole_box(view); }
};

using SavePlan = std::vector<PlannedTensor>;

using nlohmann::json;

/// A box as described by the ranks that have it.
struct DescribedBox {
  Box box;
  std::vector<checkpoint::HeldPiece> held;
};

/// A tensor as described by the ranks.
struct Described {
  std::string name;
  std::string type;
  Shape shape;
  bool common = true;
  Shape view;
  int first_rank = 0;
  std::vector<DescribedBox> boxes;
};

TensorPart part_of(const json& piece) {
  if (piece[6].is_null()) return whole_part(piece[2].get<Shape>());
  return {piece[6][0].get<Shape>(), {piece[6][1].get<Shape>(), piece[6][2].get<Shape>()}};
}

void check_same(const Described& tensor, const json& piece, const TensorPart& part, int rank) {
  if (tensor.type != piece[1].get<std::string>() || tensor.shape != piece[2].get<Shape>()) {
    refuse("checkpoint: '{}' is {} {} on rank {} and {} {} on rank {}", tensor.name, tensor.type,
           json(tensor.shape).dump(), tensor.first_rank, piece[1].get<std::string>(),
           piece[2].dump(), rank);
  }
  if (tensor.view == part.view) return;
  refuse("checkpoint: '{}' is divided as {} on rank {} and as {} on rank {}", tensor.name,
         json(tensor.view).dump(), tensor.first_rank, json(part.view).dump(), rank);
}

void add(std::vector<Described>& tensors, std::unordered_map<std::string, std::size_t>& by_name,
         const json& piece, int rank) {
  const auto name = piece[0].get<std::string>();
  TensorPart part = part_of(piece);
  const auto [at, is_new] = by_name.emplace(name, tensors.size());
  if (is_new) {
    tensors.push_back({name,
                       piece[1].get<std::string>(),
                       piece[2].get<Shape>(),
                       piece[5].get<bool>(),
                       part.view,
                       rank,
                       {}});
  }
  Described& tensor = tensors[at->second];
  check_same(tensor, piece, part, rank);
  auto box = std::ranges::find(tensor.boxes, part.box, &DescribedBox::box);
  if (box == tensor.boxes.end()) {
    tensor.boxes.push_back({std::move(part.box), {}});
    box = tensor.boxes.end() - 1;
  }
  // If replicas differ, the first rank's is saved.
  if (!tensor.common && !box->held.empty() && box->held.front().rank != rank) return;
  box->held.push_back({rank, piece[3].get<std::int64_t>(), piece[4].get<std::int64_t>()});
}

/// Name of a piece in a rank's file.
std::string key_of(const PlannedTensor& tensor, std::size_t box, std::int64_t begin) {
  if (tensor.is_whole()) return fmt::format("{}@{}", tensor.name, begin);
  return fmt::format("{}@{}@{}", tensor.name, box, begin);
}

/// Returns the elements of `wanted` from this rank's pieces.
torch::Tensor elements(const std::vector<const TensorPiece*>& pieces, const Box& box,
                       const checkpoint::HeldPiece& wanted) {
  for (const auto* piece : pieces) {
    const auto first = wanted.begin - piece->begin;
    if (first < 0 || first + wanted.count > piece->data.numel()) continue;
    if (piece->range().part.box != box) continue;
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
  for (const PlannedTensor& tensor : plan) {
    for (std::size_t b = 0; b < tensor.boxes.size(); ++b) {
      const auto& [box, pieces] = tensor.boxes[b];
      for (const checkpoint::HeldPiece& piece : pieces) {
        if (piece.rank != rank) continue;
        tensors[key_of(tensor, b, piece.begin)] = elements(mine[tensor.name], box, piece);
      }
    }
  }
  for (const auto& [name, tensor] : content.rank_tensors) tensors["rank:" + name] = tensor;
  return tensors;
}

std::string written_text(const checkpoint::ManifestFile& file,
                         const checkpoint::SafetensorsHeader& header) {
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

/// Describes a rank's pieces to the other ranks.
json describe_pieces(const std::vector<TensorPiece>& pieces) {
  json list = json::array();
  for (const auto& piece : pieces) {
    const auto& part = piece.part;
    list.push_back({piece.name, safetensors_type_name(piece.data.scalar_type()), piece.shape,
                    piece.begin, piece.data.numel(), piece.common,
                    part ? json{part->view, part->box.begin, part->box.end} : json()});
  }
  return list;
}

/// Plans who writes the boxes of a tensor. Boxes without elements are left out, unless the tensor
/// has none.
PlannedTensor plan_tensor(Described tensor, std::vector<std::uint64_t>& load) {
  PlannedTensor planned{tensor.name, tensor.type, tensor.shape, tensor.view, {}};
  const bool is_empty = whole_box(tensor.view).empty();
  if (is_empty) tensor.boxes.resize(1);
  std::erase_if(tensor.boxes,
                [&](const DescribedBox& each) { return each.box.empty() && !is_empty; });
  Division division{tensor.view, {}};
  for (DescribedBox& each : tensor.boxes) {
    division.boxes.push_back(each.box);
    auto pieces =
        checkpoint::plan_pieces(tensor.name, each.box.elements(),
                                checkpoint::stored_type_bytes(tensor.type), each.held, load);
    planned.boxes.push_back({std::move(each.box), std::move(pieces)});
  }
  if (planned.boxes.size() <= checkpoint::kMaxBoxes && (is_empty || division.is_partition())) {
    return planned;
  }
  refuse("checkpoint: the {} boxes of '{}' on all ranks do not have each element once",
         planned.boxes.size(), tensor.name);
}

/// Plans which rank writes what, from all ranks' descriptions; the same on all ranks. Throws
/// Exception(invalid_argument) that names a tensor whose shape or type differs between ranks, or
/// that has an element on no rank.
SavePlan plan_save(const std::vector<json>& described) {
  std::vector<Described> tensors;
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t rank = 0; rank < described.size(); ++rank) {
    for (const auto& piece : described[rank]) add(tensors, by_name, piece, static_cast<int>(rank));
  }
  SavePlan plan;
  std::vector<std::uint64_t> load(described.size(), 0);
  for (auto& tensor : tensors) plan.push_back(plan_tensor(std::move(tensor), load));
  return plan;
}

/// Writes a rank's file. Returns the file's entries in the manifest, for add_shard().
std::string write_my_shard(checkpoint::Disk& disk, const std::filesystem::path& path,
                           const SavePlan& plan, const CheckpointContent& content, int rank) {
  const auto tensors = my_tensors(plan, content, rank);
  std::vector<checkpoint::StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) {
    stored.push_back({.name = name,
                      .type = safetensors_type_name(tensor.scalar_type()),
                      .shape = tensor.sizes().vec()});
  }
  const auto header = checkpoint::lay_out_safetensors(std::move(stored), {{"format", "pt"}});
  torch::Tensor copied;  // At most one copy at a time.
  const auto file =
      checkpoint::write_shard(disk, path, header, [&](const std::string& name) -> ConstBytes {
        copied = tensors.at(name).detach().to(torch::kCPU).contiguous();
        return bytes_of(copied);
      });
  return written_text(file, header);
}

/// A tensor of the manifest, whose pieces have no offsets yet.
checkpoint::ManifestTensor manifest_tensor(const PlannedTensor& planned) {
  checkpoint::ManifestTensor tensor{planned.name, planned.type, planned.shape, {}};
  if (!planned.is_whole()) {
    tensor.view = planned.view;
    for (const PlannedBox& each : planned.boxes) tensor.boxes.push_back(each.box);
  }
  for (std::size_t b = 0; b < planned.boxes.size(); ++b) {
    for (const checkpoint::HeldPiece& piece : planned.boxes[b].pieces) {
      tensor.pieces.push_back(
          {static_cast<std::size_t>(piece.rank), piece.begin, piece.count, 0, b});
    }
  }
  return tensor;
}

/// Adds the file that rank `rank` wrote to the manifest. Call for one rank after the other.
void add_shard(checkpoint::Manifest& manifest, const SavePlan& plan, std::size_t rank,
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
    for (const auto& tensor : plan) manifest.tensors.push_back(manifest_tensor(tensor));
  }
  for (std::size_t t = 0; t < plan.size(); ++t) {
    for (auto& piece : manifest.tensors[t].pieces) {
      if (piece.file != rank) continue;
      piece.offset =
          text["offsets"].at(key_of(plan[t], piece.box, piece.begin)).get<std::uint64_t>();
    }
  }
}

namespace fs = std::filesystem;
using nlohmann::json;

/// Writes one checkpoint, on one rank.
class Saving {
 public:
  Saving(c10d::ProcessGroup& group, const CheckpointContent& content, const SavePlace& place)
      : group_(group),
        content_(content),
        place_(place),
        disk_(place.disk != nullptr ? *place.disk : own_disk_) {}

  fs::path save(std::int64_t step) {
    try {
      agree(step);
      write_part();
      find_leader();
      complete();
      check();
      prune();
      clean_up();
      return checkpoint_;
    } catch (...) {
      clean_up();
      throw;
    }
  }

 private:
  int rank() const { return group_.getRank(); }
  int ranks() const { return group_.getSize(); }
  std::string my_shard() const { return checkpoint::shard_name(rank(), ranks()); }

  /// Agrees on the content, the plan and the checkpoint's name.
  void agree(std::int64_t step) {
    const auto texts = collective_try(group_, [&] {
      disk_.make_folders(place_.folder);
      json taken = json::array();
      for (const auto& found : checkpoint::list_checkpoints(place_.folder)) {
        taken.push_back(found.path.filename().string());
        manifest_.sequence = std::max(manifest_.sequence, found.sequence);
      }
      return json{{"taken", taken},         {"sequence", manifest_.sequence},
                  {"token", random_hex(4)}, {"model", content_.model},
                  {"run", content_.run},    {"pieces", describe_pieces(content_.pieces)}}
          .dump();
    });
    std::vector<json> all;
    for (const auto& text : texts) all.push_back(json::parse(text));
    std::set<std::string> taken;
    for (const auto& one : all) {
      for (const auto& name : one["taken"]) taken.insert(name.get<std::string>());
      manifest_.sequence = std::max(manifest_.sequence, one["sequence"].get<std::int64_t>());
    }
    ++manifest_.sequence;
    manifest_.step = step;
    manifest_.model = all[0]["model"].get<std::string>();
    manifest_.run = all[0]["run"].get<std::string>();
    token_ = all[0]["token"].get<std::string>();
    const auto name = checkpoint::checkpoint_name(
        step, [&taken](const auto& candidate) { return taken.contains(candidate); });
    checkpoint_ = place_.folder / name;
    std::vector<json> pieces;
    for (auto& one : all) pieces.push_back(std::move(one["pieces"]));
    plan_ = plan_save(pieces);
  }

  void write_part() {
    const auto texts = collective_try(group_, [&] {
      lock_.emplace(disk_, place_.folder, checkpoint_.filename().string(), token_);
      checkpoint::remove_leftovers(disk_, place_.folder, *lock_);
      disk_.make_folder(lock_->partial());
      return write_my_shard(disk_, lock_->partial() / my_shard(), plan_, content_, rank());
    });
    for (std::size_t r = 0; r < texts.size(); ++r) add_shard(manifest_, plan_, r, texts[r]);
  }

  /// Ranks that see each other's files share a folder; the first of them completes it.
  void find_leader() {
    const auto texts = collective_try(group_, [&] {
      int first = 0;
      while (first < rank() &&
             !fs::exists(lock_->partial() / checkpoint::shard_name(first, ranks())))
        ++first;
      return std::to_string(first);
    });
    leader_ = texts[static_cast<std::size_t>(rank())] == std::to_string(rank());
    one_folder_ = std::ranges::all_of(texts, [](const auto& text) { return text == "0"; });
  }

  /// Rank 0's folder is completed last: the checkpoint then exists. Folders on different hosts must
  /// agree on its name.
  void complete() {
    const auto act = [&](bool mine) {
      return collective_try(group_, [&]() -> std::string {
        if (!mine) return "";
        const auto place = checkpoint::complete_checkpoint(disk_, lock_->partial(), checkpoint_,
                                                           manifest_, one_folder_);
        return place.filename().string();
      });
    };
    if (!one_folder_) act(leader_ && rank() != 0);
    checkpoint_ = place_.folder / act(rank() == 0)[0];
    completed_ = true;
  }

  /// Verifies the written checkpoint before any older one is removed.
  void check() {
    collective_try(group_, [&] {
      try {
        checkpoint::check_written(checkpoint_, manifest_.files[static_cast<std::size_t>(rank())]);
        const auto sequence =
            leader_ ? checkpoint::read_manifest(checkpoint_).sequence : manifest_.sequence;
        if (sequence != manifest_.sequence) refuse("it has been replaced");
      } catch (const Exception& error) {
        if (was_pruned()) return "";
        refuse(
            "{} was written but is incomplete now: {}; does another job write to this "
            "folder? Older checkpoints were kept",
            checkpoint_.string(), error.what());
      }
      return "";
    });
  }

  /// Returns true if another job that saves here has saved a newer checkpoint and removed this one.
  bool was_pruned() const {
    const auto found = checkpoint::list_checkpoints(place_.folder);
    return !fs::exists(checkpoint_) && !found.empty() &&
           found.back().sequence >= manifest_.sequence;
  }

  void prune() {
    if (place_.keep == 0) return;
    const auto kept = collective_try(group_, [&] { return rank() == 0 ? names_to_keep() : ""; })[0];
    collective_try(group_, [&] {
      if (!leader_) return "";
      for (const auto& found : checkpoint::list_checkpoints(place_.folder)) {
        const auto name = "/" + found.path.filename().string() + "/";
        const bool older = found.sequence >= 0 && found.sequence < manifest_.sequence;
        if (older && kept.find(name) == std::string::npos)
          checkpoint::remove_checkpoint(disk_, found.path);
      }
      return "";
    });
  }

  /// Returns names, each enclosed in slashes.
  std::string names_to_keep() const {
    std::string names = "/";
    std::int64_t count = 0;
    auto found = checkpoint::list_checkpoints(place_.folder);
    for (auto it = found.rbegin(); it != found.rend() && count < place_.keep; ++it) {
      if (it->sequence < 0 || (it->path != checkpoint_ && !has_files(it->path))) continue;
      names += it->path.filename().string() + "/";
      ++count;
    }
    return names;
  }

  /// Returns true if no file is known to be missing; files of other hosts may exist there.
  bool has_files(const fs::path& checkpoint) const {
    try {
      for (const auto& file : checkpoint::read_manifest(checkpoint).files) {
        if (one_folder_ || fs::exists(checkpoint / file.name))
          checkpoint::check_written(checkpoint, file);
      }
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  void clean_up() noexcept {
    if (!lock_) return;
    try {
      if (!completed_) disk_.remove_all(lock_->partial());
      lock_->release();
    } catch (...) {
      // The next save cleans up.
    }
  }

  c10d::ProcessGroup& group_;
  const CheckpointContent& content_;
  const SavePlace& place_;
  checkpoint::Disk own_disk_;
  checkpoint::Disk& disk_;
  checkpoint::Manifest manifest_;
  SavePlan plan_;
  std::string token_;
  fs::path checkpoint_;
  std::optional<checkpoint::SaveLock> lock_;
  bool leader_ = false;
  bool one_folder_ = false;
  bool completed_ = false;
};

}  // namespace

fs::path save_pieces(c10d::ProcessGroup& group, const CheckpointContent& content, std::int64_t step,
                     const SavePlace& place) {
  return Saving(group, content, place).save(step);
}

std::vector<NamedTensor> gather_model(c10d::ProcessGroup& group,
                                      const std::vector<TensorPiece>& pieces) {
  const torch::NoGradGuard no_grad;
  CheckpointContent content;
  std::ranges::copy_if(pieces, std::back_inserter(content.pieces),
                       [](const TensorPiece& piece) { return !piece.is_state; });
  std::vector<json> described;
  for (const auto& text : gather_texts(group, describe_pieces(content.pieces).dump())) {
    described.push_back(json::parse(text));
  }
  const SavePlan plan = plan_save(described);
  const int rank = group.getRank();
  const auto mine = my_tensors(plan, content, rank);
  std::map<std::string, torch::Tensor> whole;
  for (const PlannedTensor& planned : plan) {
    const auto type = safetensors_type(planned.type);
    if (rank == 0) whole[planned.name] = torch::empty(planned.shape, type);
    const checkpoint::ManifestTensor tensor = manifest_tensor(planned);
    for (const checkpoint::ManifestPiece& piece : tensor.pieces) {
      const int from = static_cast<int>(piece.file);
      if (rank != 0 && rank != from) continue;
      std::vector<torch::Tensor> data{
          rank == from ? mine.at(key_of(planned, piece.box, piece.begin)).detach().cpu()
                       : torch::empty({piece.count}, type)};
      if (rank != 0) {
        group.send(data, 0, 0)->wait();
        continue;
      }
      if (from != 0) group.recv(data, from, 0)->wait();
      const torch::Tensor all = whole[planned.name].view({-1});
      copy_shared(tensor.range_of(piece), data[0], {whole_part(planned.shape), 0, all.numel()},
                  all);
    }
  }
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : whole) tensors.push_back({name, tensor});
  return tensors;
}

}  // namespace gradwire
