#include "gradwire/train/checkpoint/save.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/base/random_hex.h"
#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/shard_file.h"
#include "gradwire/train/checkpoint/collective_try.h"
#include "gradwire/train/checkpoint/save_plan.h"
#include "gradwire/train/checkpoint/stored_types.h"

namespace gradwire {
namespace {

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
  std::string my_shard() const { return shard_name(rank(), ranks()); }

  /// Agrees on the content, the plan and the checkpoint's name.
  void agree(std::int64_t step) {
    const auto texts = collective_try(group_, [&] {
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
    std::vector<json> pieces;
    for (auto& one : all) pieces.push_back(std::move(one["pieces"]));
    plan_ = plan_save(pieces);
  }

  void write_part() {
    const auto texts = collective_try(group_, [&] {
      lock_.emplace(disk_, place_.folder, checkpoint_.filename().string(), token_);
      remove_leftovers(disk_, place_.folder, *lock_);
      disk_.make_folder(lock_->partial());
      return write_my_shard(disk_, lock_->partial() / my_shard(), plan_, content_, rank());
    });
    for (std::size_t r = 0; r < texts.size(); ++r) add_shard(manifest_, plan_, r, texts[r]);
  }

  /// Ranks that see each other's files share a folder; the first of them completes it.
  void find_leader() {
    const auto texts = collective_try(group_, [&] {
      int first = 0;
      while (first < rank() && !fs::exists(lock_->partial() / shard_name(first, ranks()))) ++first;
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
        const auto place =
            complete_checkpoint(disk_, lock_->partial(), checkpoint_, manifest_, one_folder_);
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
        check_written(checkpoint_, manifest_.files[static_cast<std::size_t>(rank())]);
        const auto sequence = leader_ ? read_manifest(checkpoint_).sequence : manifest_.sequence;
        if (sequence != manifest_.sequence) refuse("it has been replaced");
      } catch (const Exception& error) {
        if (was_pruned()) return "";
        refuse(
            fmt::format("{} was written but is incomplete now: {}; does another job write to this "
                        "folder? Older checkpoints were kept",
                        checkpoint_.string(), error.what()));
      }
      return "";
    });
  }

  /// Returns true if another job that saves here has saved a newer checkpoint and removed this one.
  bool was_pruned() const {
    const auto found = list_checkpoints(place_.folder);
    return !fs::exists(checkpoint_) && !found.empty() &&
           found.back().sequence >= manifest_.sequence;
  }

  void prune() {
    if (place_.keep == 0) return;
    const auto kept = collective_try(group_, [&] { return rank() == 0 ? names_to_keep() : ""; })[0];
    collective_try(group_, [&] {
      if (!leader_) return "";
      for (const auto& found : list_checkpoints(place_.folder)) {
        const auto name = "/" + found.path.filename().string() + "/";
        const bool older = found.sequence >= 0 && found.sequence < manifest_.sequence;
        if (older && kept.find(name) == std::string::npos) remove_checkpoint(disk_, found.path);
      }
      return "";
    });
  }

  /// Returns names, each enclosed in slashes.
  std::string names_to_keep() const {
    std::string names = "/";
    std::int64_t count = 0;
    auto found = list_checkpoints(place_.folder);
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
      for (const auto& file : read_manifest(checkpoint).files) {
        if (one_folder_ || fs::exists(checkpoint / file.name)) check_written(checkpoint, file);
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
  Disk own_disk_;
  Disk& disk_;
  Manifest manifest_;
  SavePlan plan_;
  std::string token_;
  fs::path checkpoint_;
  std::optional<SaveLock> lock_;
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
