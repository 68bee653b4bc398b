#include "gradwire/cli/launch/secret_file.h"

#include <cctype>

#include <fmt/format.h>

#include "gradwire/base/private_file.h"
#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

/// Maximum size of a secret, which is passed in an environment variable and keys a hash.
constexpr std::size_t kMaxBytes = 4096;

}  // namespace

std::string read_secret_file(const std::string& path) {
  const auto file = read_private_file(path, kMaxBytes + 1);
  if (!file) refuse(fmt::format("--secret-file {}: it {}", path, file.error().message));
  if (!file->exists) refuse(fmt::format("--secret-file {}: there is no such file", path));
  std::string secret = file->content;
  if (secret.size() > kMaxBytes) {
    refuse(
        fmt::format("--secret-file {}: it has more than {} bytes; `openssl rand -hex 16` prints "
                    "a secret",
                    path, kMaxBytes));
  }
  while (!secret.empty() && std::isspace(static_cast<unsigned char>(secret.back()))) {
    secret.pop_back();
  }
  if (secret.empty()) refuse(fmt::format("--secret-file {}: the file is empty", path));
  if (secret.find('\0') != std::string::npos) {
    refuse(fmt::format("--secret-file {}: it contains a zero byte, which a secret cannot contain",
                       path));
  }
  return secret;
}

}  // namespace gradwire
