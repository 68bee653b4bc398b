#include "gradwire/base/atomic_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

/// Flushes the rename itself to the disk.
void flush_folder(const std::filesystem::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());
}

/// Creates a folder and its parents, and flushes the names of new ones to the disk. Returns the
/// error of the one that could not be created.
std::error_code make_folders(const std::filesystem::path& folder) {
  std::filesystem::path so_far;
  for (const auto& part : folder) {
    so_far /= part;
    std::error_code error;
    const bool made = std::filesystem::create_directory(so_far, error);
    if (made) flush_folder(folder_of(so_far));
    std::error_code ignored;
    if (!error || std::filesystem::is_directory(so_far, ignored)) continue;
    const bool is_file = std::filesystem::exists(so_far, ignored);
    return is_file ? std::make_error_code(std::errc::not_a_directory) : error;
  }
  return {};
}

/// Returns true if the path must not be replaced: a pipe, a device, or a name of an open file, such
/// as /dev/stdout, even if that is a regular file.
bool is_special(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) return false;
  return std::filesystem::is_other(status) ||
         (path.string().starts_with("/dev/") && std::filesystem::is_symlink(path, ignored));
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  if (is_special(path_)) {
    fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  } else {
    std::error_code ignored;  // Opening the file reports errors.
    if (std::filesystem::is_symlink(path_, ignored)) {
      path_ = std::filesystem::weakly_canonical(path_, ignored);
    }
    if (!path_.has_filename() || std::filesystem::is_directory(path_, ignored)) {
      errno = EISDIR;  // Fail early: the rename would fail only after all data is written.
      fail("cannot be written");
    }
    make_folder();
    temporary_ = path_;
    temporary_ += fmt::format(".{}.part", ::getpid());
    fd_ = UniqueFd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  }
  if (fd_.get() < 0) fail("cannot be written");
}

void AtomicFile::make_folder() const {
  const std::filesystem::path folder = folder_of(path_);
  const std::error_code error = make_folders(folder);
  if (!error) return;
  throw Exception(ErrorKind::system,
                  fmt::format("{} cannot be written: {} (its folder {} cannot be created)",
                              path_.string(), error.message(), folder.string()));
}

AtomicFile::~AtomicFile() {
  if (fd_.get() >= 0 && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  throw Exception(ErrorKind::system,
                  fmt::format("{} {}: {}", path_.string(), what, std::strerror(errno)));
}

void AtomicFile::write(const void* data, std::size_t size) {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = ::write(fd_.get(), from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    from += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) {
    fd_ = UniqueFd();
    return;
  }
  if (::fsync(fd_.get()) != 0) fail("cannot be flushed to the disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed into place");
  fd_ = UniqueFd();
  flush_folder(folder_of(path_));
}

void check_writable(const std::filesystem::path& path) {
  if (!is_special(path)) const AtomicFile never_committed(path);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace gradwire
