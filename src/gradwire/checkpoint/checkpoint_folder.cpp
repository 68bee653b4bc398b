#include "gradwire/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <set>
#include <span>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/input_file.h"

namespace gradwire::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_checkpoint_name(const std::string& name) {
  const auto digits = name.substr(0, 5) == "step-" ? name.substr(5) : std::string();
  return !digits.empty() && digits.find_first_not_of("0123456789.") == std::string::npos;
}

FoundCheckpoint inspect(const fs::path& path) {
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

/// Returns the paths in `folder`; none if the folder does not exist. Any other error throws: a run
/// that resumes would otherwise start from step 0 and prune checkpoints that it did not see.
std::vector<fs::path> names_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  const bool none =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (none) return {};
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    paths.push_back(entry->path());
  }
  if (!error) return paths;
  throw Exception(ErrorKind::system,
                  fmt::format("{} cannot be listed: {}", folder.string(), error.message()));
}

/// Returns false only if `path` is known not to exist. If its status cannot be read, opening it
/// reports why.
bool is_there(const fs::path& path) {
  std::error_code unknown;
  return fs::status(path, unknown).type() != fs::file_type::not_found;
}

/// Returns true also if the status of `path` cannot be read, as is_there() does.
bool is_folder(const fs::path& path) {
  std::error_code unknown;
  const auto type = fs::status(path, unknown).type();
  return type == fs::file_type::directory || type == fs::file_type::none;
}

/// Returns the newest checkpoint of `found`, or an empty path if there is none. Throws
/// Exception(invalid_argument) if any is damaged: a damaged manifest does not tell its sequence
/// number, so that checkpoint may be the newest.
fs::path newest_of(const std::vector<FoundCheckpoint>& found) {
  if (found.empty()) return {};
  const auto& damaged = found.front();
  const auto& newest = found.back();
  if (damaged.damage.empty()) return newest.path;
  const auto rest =
      newest.damage.empty()
          ? fmt::format("or resume from the newest readable one, {}", newest.path.string())
          : "no other checkpoint here is readable";
  refuse(
      "{} (it may be the newest checkpoint, and an older one is never chosen "
      "automatically: remove {}, {})",
      damaged.damage, damaged.path.string(), rest);
}

void write_manifest(Disk& disk, const fs::path& partial, const Manifest& manifest) {
  const auto path = partial / kManifestName;
  const auto text = manifest_text(manifest);
  parse_manifest(text, path);  // Throws before an unreadable manifest is written.
  const auto file = disk.create(path);
  disk.write(file, std::as_bytes(std::span(text)), path);
  disk.flush(file, path);
  disk.flush_folder(partial);
}

}  // namespace

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& folder) {
  std::vector<FoundCheckpoint> found;
  for (const auto& path : names_in(folder)) {
    if (!is_checkpoint_name(path.filename().string()) || !is_folder(path)) continue;
    auto checkpoint = inspect(path);
    if (is_folder(path)) found.push_back(std::move(checkpoint));  // Else another saver removed it.
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.path < b.path;
  });
  return found;
}

fs::path find_checkpoint(const fs::path& path) {
  if (!is_there(path)) {
    throw NoCheckpoint(fmt::format("{}: there is no such checkpoint", path.string()));
  }
  if (is_there(path / kManifestName)) return path;
  const auto folder = is_folder(path) ? path : path.parent_path();
  for (const auto& place : {folder, folder / "checkpoints"}) {
    if (auto newest = newest_of(list_checkpoints(place)); !newest.empty()) return newest;
  }
  if (is_folder(path)) {
    throw NoCheckpoint(
        fmt::format("{}: no complete checkpoint in this folder: it has no folder "
                    "step-N with a {}",
                    path.string(), kManifestName));
  }
  throw NoCheckpoint(
      fmt::format("{} is a model, not a checkpoint, and no run can resume from it: write "
                  "checkpoints with checkpoint_every, and resume from their folder",
                  path.string()));
}

std::string manifest_text_of(const fs::path& checkpoint) {
  const InputFile file(checkpoint / kManifestName);
  if (file.size() > kMaxManifestBytes) {
    refuse(
        "{}: is damaged: it has {} bytes, but a manifest has at most {}; use "
        "another checkpoint",
        file.path().string(), file.size(), kMaxManifestBytes);
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Manifest read_manifest(const fs::path& checkpoint) {
  return parse_manifest(manifest_text_of(checkpoint), checkpoint / kManifestName);
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

void remove_leftovers(Disk& disk, const fs::path& folder, const SaveLock& own) {
  std::error_code unknown;
  const auto now = fs::last_write_time(own.file(), unknown);
  std::set<fs::path> attempts;
  for (const auto& path : names_in(folder)) {
    const auto name = path.filename().string();
    if (!name.starts_with(".step-") || path == own.file() || path == own.partial()) continue;
    if (name.ends_with(".old")) disk.remove_all(path);
    if (name.ends_with(".partial") || name.ends_with(".lock")) {
      attempts.insert(folder / path.stem());
    }
  }
  for (const auto& stem : attempts) {
    if (unknown || !is_abandoned(stem, now)) continue;
    disk.remove_all(stem.string() + ".partial");
    disk.remove(stem.string() + ".lock");
  }
}

fs::path complete_checkpoint(Disk& disk, const fs::path& partial, const fs::path& checkpoint,
                             const Manifest& manifest, bool other_name) {
  write_manifest(disk, partial, manifest);
  const auto folder = checkpoint.parent_path();
  auto place = checkpoint;
  for (int again = 2;; ++again) {
    try {
      disk.rename(partial, place);
      disk.flush_folder(folder);
      return place;
    } catch (const Exception&) {
      if (!other_name || !is_there(partial) || !is_there(place)) throw;
    }
    place = folder / fmt::format("{}.{}", checkpoint.filename().string(), again);
  }
}

void check_written(const fs::path& checkpoint, const ManifestFile& file) {
  const auto opened = open_shard(checkpoint, file);
  std::vector<std::byte> part(std::min<std::uint64_t>(file.bytes, 4096));
  opened.read(0, part);
  opened.read(file.bytes - part.size(), part);
}

void remove_checkpoint(Disk& disk, const fs::path& checkpoint) {
  const auto folder = checkpoint.parent_path();
  const auto old =
      folder / fmt::format(".{}.{}.old", checkpoint.filename().string(), random_hex(4));
  try {
    disk.rename(checkpoint, old);
  } catch (const Exception&) {
    if (is_there(checkpoint)) throw;
    return;
  }
  disk.flush_folder(folder);  // A crash must not persist removed files without the rename.
  disk.remove_all(old);
}

}  // namespace gradwire::checkpoint
