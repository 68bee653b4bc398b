#include "gradwire/base/private_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gradwire/base/unique_fd.h"

namespace gradwire {
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
  if (Status own = check_private(file.get()); !own) return tl::unexpected<Error>(own.error());
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

}  // namespace gradwire
