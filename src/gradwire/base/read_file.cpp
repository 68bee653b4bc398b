#include "gradwire/base/read_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include <fmt/format.h>

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

}  // namespace gradwire
