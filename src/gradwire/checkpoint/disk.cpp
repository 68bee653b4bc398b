#include "gradwire/checkpoint/disk.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "gradwire/base/error.h"

namespace gradwire::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  const char* reason = std::strerror(errno);
  throw Exception(ErrorKind::system, fmt::format("{} {}: {}", path.string(), what, reason));
}

}  // namespace

void Disk::make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) fail(path, "cannot be created");
}

UniqueFd Disk::create(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) fail(path, "cannot be written");
  return file;
}

UniqueFd Disk::append_to(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file.valid()) fail(path, "cannot be written");
  return file;
}

void Disk::write(const UniqueFd& file, ConstBytes bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const auto written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void Disk::flush(const UniqueFd& file, const fs::path& path) {
  if (::fsync(file.get()) != 0) fail(path, "cannot be flushed to the disk");
}

void Disk::flush_folder(const fs::path& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems do not support this and return EINVAL.
  if (!folder.valid() || (::fsync(folder.get()) != 0 && errno != EINVAL)) {
    fail(path, "cannot be flushed to the disk");
  }
}

void Disk::rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "cannot be renamed into place");
}

void Disk::remove(const fs::path& path) {
  if (::remove(path.c_str()) != 0 && errno != ENOENT) fail(path, "cannot be removed");
}

void Disk::make_folders(const fs::path& path) {
  fs::path so_far;
  for (const auto& part : path) {
    const auto parent = so_far.empty() ? fs::path(".") : so_far;
    so_far /= part;
    std::error_code unknown;  // Ignored: make_folder() reports the error.
    if (part.empty() || fs::exists(so_far, unknown)) continue;
    make_folder(so_far);
    flush_folder(parent);
  }
}

void Disk::remove_all(const fs::path& path) {
  std::error_code gone;  // Another rank may have removed it already.
  if (fs::is_directory(fs::symlink_status(path, gone))) {
    std::vector<fs::path> inside;
    for (fs::directory_iterator entry(path, gone), end; !gone && entry != end;
         entry.increment(gone)) {
      inside.push_back(entry->path());
    }
    for (const auto& entry : inside) remove_all(entry);
  }
  remove(path);
}

}  // namespace gradwire::checkpoint
