#include "gradwire/cli/launch/secret_file.h"

#include <cctype>

#include <fmt/format.h>

#include "gradwire/base/private_file.h"
#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

/// It travels in an environment variable, and is keyed into a hash; nobody needs a longer one.
constexpr std::size_t kMostBytes = 4096;

}  // namespace

std::string read_secret_file(const std::string& path) {
  const auto file = read_private_file(path, kMostBytes + 1);
  if (!file) refuse(fmt::format("--secret-file {}: it {}", path, file.error().message));
  if (!file->exists) refuse(fmt::format("--secret-file {}: there is no such file", path));
  std::string secret = file->content;
  if (secret.size() > kMostBytes) {
    refuse(
        fmt::format("--secret-file {}: it has more than {} bytes; `openssl rand -hex 16` prints "
                    "a secret",
                    path, kMostBytes));
  }
  while (!secret.empty() && std::isspace(static_cast<unsigned char>(secret.back()))) {
    secret.pop_back();
  }
  if (secret.empty()) refuse(fmt::format("--secret-file {}: the file is empty", path));
  if (secret.find('\0') != std::string::npos) {
    refuse(fmt::format("--secret-file {}: it has a zero byte, which no secret can have", path));
  }
  return secret;
}

}  // namespace gradwire
