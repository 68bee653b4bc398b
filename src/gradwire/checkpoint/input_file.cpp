#include "gradwire/checkpoint/input_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/refuse.h"

namespace gradwire::checkpoint {
InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)),
      // O_NONBLOCK: do not wait for the writer of a pipe in place of a file.
      fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  struct stat status {};
  if (!fd_.valid() || ::fstat(fd_.get(), &status) != 0) {
    refuse("{}: cannot be opened: {}", path_.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) refuse("{}: cannot be opened: it is not a file", path_.string());
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::uint64_t offset, Bytes into) const {
  while (!into.empty()) {
    const auto got = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("{}: cannot be read: {}", path_.string(), std::strerror(errno));
    if (got == 0) refuse("{}: is truncated", path_.string());
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

std::uint32_t InputFile::checksum() const {
  std::vector<std::byte> chunk(std::min<std::uint64_t>(size_, 1 << 20));
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < size_; at += chunk.size()) {
    const Bytes part = Bytes(chunk).first(std::min<std::uint64_t>(chunk.size(), size_ - at));
    read(at, part);
    crc = crc32c(part, crc);
  }
  return crc;
}

}  // namespace gradwire::checkpoint
