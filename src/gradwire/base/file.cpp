#include "gradwire/base/file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gradwire {
namespace {

tl::unexpected<Error> unreadable(const std::filesystem::path& path, const char* reason) {
  return failure(ErrorKind::system, fmt::format("cannot read {}: {}", path.string(), reason));
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code ignored;  // Opening the file reports errors.
  // A folder can be opened; only reading it would fail.
  if (std::filesystem::is_directory(path, ignored)) return unreadable(path, "it is a folder");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable(path, errno != 0 ? std::strerror(errno) : "it cannot be opened");
  std::string content;
  std::vector<char> piece(1 << 16);
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    content.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (file.bad()) return unreadable(path, errno != 0 ? std::strerror(errno) : "the read failed");
  return content;
}

namespace {

constexpr mode_t kOfOthers = 077;

tl::unexpected<Error> failed(const char* what) {
  return tl::unexpected<Error>(
      Error{ErrorKind::system, fmt::format("{}: {}", what, std::strerror(errno))});
}

tl::unexpected<Error> refused(const std::string& what) {
  return tl::unexpected<Error>(
      Error{ErrorKind::refused,
            fmt::format(
                "{}; it must be a file of user {} that no other user can read or write (mode 600)",
                what, ::geteuid())});
}

Status check_private(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return failed("cannot be examined");
  if (!S_ISREG(info.st_mode)) return refused("is not a regular file");
  if (info.st_uid == ::geteuid() && (info.st_mode & kOfOthers) == 0) return {};
  return refused(
      fmt::format("belongs to user {} and has mode {:03o}", info.st_uid, info.st_mode & 07777));
}

}  // namespace

Result<PrivateFile> read_private_file(const std::string& path, std::size_t max_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() && errno == ENOENT) return PrivateFile{};
  if (!file.valid() && errno == ELOOP) return refused("is a symbolic link");
  if (!file.valid()) return failed("cannot be opened");
  GRADWIRE_RETURN_IF_ERROR(check_private(file.get()));
  std::string content(max_bytes, '\0');
  std::size_t size = 0;
  while (size < max_bytes) {
    const ssize_t count = ::read(file.get(), content.data() + size, max_bytes - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("cannot be read");
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  content.resize(size);
  return PrivateFile{.exists = true, .content = std::move(content)};
}

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
