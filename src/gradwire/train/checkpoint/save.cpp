#include "gradwire/train/checkpoint/save.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/base/random_hex.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/shard_file.h"
#include "gradwire/train/checkpoint/save_plan.h"
#include "gradwire/train/checkpoint/stored_types.h"
#include "gradwire/train/checkpoint/together.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// One rank's part in writing one checkpoint.
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
      prune();
      return checkpoint_;
    } catch (...) {
      clean_up();
      throw;
    }
  }

 private:
  int rank() const { return group_.getRank(); }
  int ranks() const { return group_.getSize(); }

  /// What is written, by whom, and what it is called.
  void agree(std::int64_t step) {
    const auto texts = together(group_, [&] {
      disk_.make_folders(place_.folder);
      json taken = json::array();
      for (const auto& found : list_checkpoints(place_.folder)) {
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
    const auto name = checkpoint_name(
        step, [&taken](const auto& candidate) { return taken.contains(candidate); });
    checkpoint_ = place_.folder / name;
    partial_ = partial_folder(place_.folder, name, token_);
    std::vector<json> pieces;
    for (auto& one : all) pieces.push_back(std::move(one["pieces"]));
    plan_ = plan_save(pieces);
  }

  void write_part() {
    const auto texts = together(group_, [&] {
      remove_leftovers(disk_, place_.folder, token_);
      disk_.make_folder(partial_);
      return write_my_shard(disk_, partial_ / shard_name(rank(), ranks()), plan_, content_, rank());
    });
    for (std::size_t r = 0; r < texts.size(); ++r) add_shard(manifest_, plan_, r, texts[r]);
  }

  /// Ranks that see each other's files share a folder: the first of them completes it.
  void find_leader() {
    const auto texts = together(group_, [&] {
      int first = 0;
      while (first < rank() && !fs::exists(partial_ / shard_name(first, ranks()))) ++first;
      return std::to_string(first);
    });
    leader_ = texts[static_cast<std::size_t>(rank())] == std::to_string(rank());
    one_folder_ = std::ranges::all_of(texts, [](const auto& text) { return text == "0"; });
  }

  /// Where rank 0 is it is completed last: then it is there.
  void complete() {
    const auto act = [&](bool mine) {
      together(group_, [&] {
        if (mine) complete_checkpoint(disk_, partial_, checkpoint_, manifest_);
        return "";
      });
    };
    if (!one_folder_) act(leader_ && rank() != 0);
    act(rank() == 0);
    completed_ = true;
  }

  void prune() {
    if (place_.keep == 0) return;
    const auto kept = text_of_root(group_, rank() == 0 ? names_to_keep() : "");
    together(group_, [&] {
      if (!leader_) return "";
      for (const auto& found : list_checkpoints(place_.folder)) {
        const auto name = "/" + found.path.filename().string() + "/";
        const bool older = found.sequence >= 0 && found.sequence < manifest_.sequence;
        if (older && kept.find(name) == std::string::npos) remove_checkpoint(disk_, found.path);
      }
      return "";
    });
  }

  /// Between slashes.
  std::string names_to_keep() const {
    std::string names = "/";
    std::int64_t count = 0;
    auto found = list_checkpoints(place_.folder);
    for (auto it = found.rbegin(); it != found.rend() && count < place_.keep; ++it) {
      if (it->sequence < 0) continue;
      names += it->path.filename().string() + "/";
      ++count;
    }
    return names;
  }

  void clean_up() noexcept {
    if (completed_ || partial_.empty()) return;
    try {
      disk_.remove_all(partial_);
    } catch (...) {
      // The next save does.
    }
  }

  c10d::ProcessGroup& group_;
  const CheckpointContent& content_;
  const SavePlace& place_;
  Disk own_disk_;
  Disk& disk_;
  Manifest manifest_;
  SavePlan plan_;
  std::string token_;
  fs::path checkpoint_;
  fs::path partial_;
  bool leader_ = false;
  bool one_folder_ = false;
  bool completed_ = false;
};

}  // namespace

fs::path save_pieces(c10d::ProcessGroup& group, const CheckpointContent& content, std::int64_t step,
                     const SavePlace& place) {
  return Saving(group, content, place).save(step);
}

}  // namespace gradwire
