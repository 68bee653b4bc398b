#include "gradwire/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/input_file.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

bool is_checkpoint_name(const std::string& name) {
  const auto digits = name.substr(0, 5) == "step-" ? name.substr(5) : std::string();
  return !digits.empty() && digits.find_first_not_of("0123456789.") == std::string::npos;
}

FoundCheckpoint look_at(const fs::path& path) {
  FoundCheckpoint found{.path = path};
  try {
    const auto manifest = read_manifest(path);
    found.step = manifest.step;
    found.sequence = manifest.sequence;
    found.ranks = manifest.ranks();
    for (const auto& file : manifest.files) found.bytes += file.bytes;
  } catch (const Exception& error) {
    found.damage = error.what();
  }
  return found;
}

/// None if there is no such folder. A disk that does not answer is not that: a run that goes on
/// where it was would begin anew, and prune what it did not see.
std::vector<fs::path> names_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  const bool none =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !none) {
    throw Exception(ErrorKind::system,
                    fmt::format("{} cannot be listed: {}", folder.string(), error.message()));
  }
  for (const auto& entry : entries) paths.push_back(entry.path());
  return paths;
}

fs::path newest_in(const fs::path& folder) {
  const auto found = list_checkpoints(folder);
  if (found.empty()) return {};
  if (found.back().sequence < 0) refuse(found.back().damage);
  return found.back().path;
}

}  // namespace

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& folder) {
  std::vector<FoundCheckpoint> found;
  for (const auto& path : names_in(folder)) {
    if (is_checkpoint_name(path.filename().string()) && fs::is_directory(path)) {
      found.push_back(look_at(path));
    }
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.path < b.path;
  });
  return found;
}

fs::path find_checkpoint(const fs::path& path) {
  if (!fs::exists(path)) refuse(fmt::format("{}: there is no such checkpoint", path.string()));
  if (fs::exists(path / kManifestName)) return path;
  const auto folder = fs::is_directory(path) ? path : path.parent_path();
  for (const auto& place : {folder, folder / "checkpoints"}) {
    if (auto newest = newest_in(place); !newest.empty()) return newest;
  }
  if (fs::is_directory(path)) {
    refuse(fmt::format("{}: there is no complete checkpoint in it: no folder step-N with a {}",
                       path.string(), kManifestName));
  }
  refuse(
      fmt::format("{} is a model alone, and no run can go on from it: write checkpoints with "
                  "checkpoint_every, and resume from their folder",
                  path.string()));
}

Manifest read_manifest(const fs::path& checkpoint) {
  const InputFile file(checkpoint / kManifestName);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return parse_manifest(text, file.path());
}

std::string checkpoint_name(std::int64_t step,
                            const std::function<bool(const std::string&)>& taken) {
  const auto first = fmt::format("step-{:06}", step);
  auto name = first;
  for (int again = 2; taken(name); ++again) name = fmt::format("{}.{}", first, again);
  return name;
}

std::string shard_name(int rank, int ranks) {
  return fmt::format("rank-{}-of-{}.safetensors", rank, ranks);
}

fs::path partial_folder(const fs::path& folder, const std::string& name, const std::string& token) {
  return folder / fmt::format(".{}.{}.partial", name, token);
}

void remove_leftovers(Disk& disk, const fs::path& folder, const std::string& token) {
  for (const auto& path : names_in(folder)) {
    const auto name = path.filename().string();
    const bool ours =
        name.starts_with(".step-") && (name.ends_with(".partial") || name.ends_with(".old"));
    if (ours && name.find("." + token + ".") == std::string::npos) disk.remove_all(path);
  }
}

void complete_checkpoint(Disk& disk, const fs::path& partial, const fs::path& checkpoint,
                         const Manifest& manifest) {
  const auto path = partial / kManifestName;
  const auto text = manifest_text(manifest);
  const auto file = disk.create(path);
  disk.write(file, std::as_bytes(std::span(text)), path);
  disk.flush(file, path);
  disk.flush_folder(partial);
  disk.rename(partial, checkpoint);
  disk.flush_folder(checkpoint.parent_path());
}

void remove_checkpoint(Disk& disk, const fs::path& checkpoint) {
  auto old = checkpoint.parent_path() / fmt::format(".{}.old", checkpoint.filename().string());
  disk.remove_all(old);
  disk.rename(checkpoint, old);
  disk.remove_all(old);
}

}  // namespace gradwire
