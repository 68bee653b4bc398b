#include "gradwire/bootstrap/job_secret.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/file.h"
#include "gradwire/base/log.h"
#include "gradwire/base/random.h"
#include "gradwire/base/unique_fd.h"
#include "gradwire/bootstrap/launchers.h"

namespace gradwire::bootstrap {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr const char* kUserKeyRemedy =
    "remove it, and a new one is created; or set GRADWIRE_SECRET to the same value on all ranks";

Exception file_error(const std::string& what, const std::string& path, std::string_view remedy) {
  return Exception(ErrorKind::system, fmt::format("cannot {} the key file {}: {}: {}", what, path,
                                                  std::strerror(errno), remedy));
}

/// Returns the key in the file, or nullopt if the file does not exist.
std::optional<std::string> read_key(const std::string& path, std::string_view remedy) {
  const auto file = read_private_file(path, 2 * kKeyBytes);
  if (!file) {
    throw Exception(file.error().kind,
                    fmt::format("the key file {} {}: {}", path, file.error().message, remedy));
  }
  if (!file->exists) return std::nullopt;
  if (file->content.size() < 2 * kKeyBytes) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("the key file {} is too short: {}", path, remedy));
  }
  return file->content;
}

/// Creates the file atomically: it gets its name only when its content is complete, and link(2)
/// fails if another rank was first.
void make_key(const std::string& path, std::string_view remedy) {
  const std::string draft = path + "." + random_hex(8);
  const std::string key = random_hex(kKeyBytes);
  bool made = false;
  {
    const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) throw file_error("make", draft, remedy);
    made = ::write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size());
  }
  made = made && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlink(draft.c_str());
  errno = error;
  if (!made) throw file_error("make", path, remedy);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

std::string key_folder(const Environment& environment) {
  const std::string runtime = environment("XDG_RUNTIME_DIR").value_or("");
  if (!runtime.empty() && is_folder(runtime)) return runtime + "/gradwire";
  const std::string cache = environment("XDG_CACHE_HOME").value_or("");
  if (!cache.empty()) return cache + "/gradwire";
  const std::string home = environment("HOME").value_or("");
  if (!home.empty()) return home + "/.cache/gradwire";
  throw Exception(ErrorKind::system,
                  "no directory for the key that this user's jobs share: none of XDG_RUNTIME_DIR, "
                  "XDG_CACHE_HOME and HOME is set: set one of them, or GRADWIRE_SECRET to the same "
                  "value on all ranks");
}

}  // namespace

std::string private_key_in(const std::string& path, std::string_view remedy) {
  if (std::optional<std::string> key = read_key(path, remedy)) return *key;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  make_key(path, remedy);
  if (std::optional<std::string> key = read_key(path, remedy)) return *key;
  throw file_error("read", path, remedy);
}

std::string user_key_in(const std::string& path) {
  return private_key_in(path, kUserKeyRemedy);
}

std::string user_key(const Environment& environment) {
  return user_key_in(key_folder(environment) + "/key");
}

Status check_secret(const std::string& secret, const net::SocketAddress& address,
                    const std::string& source) {
  if (secret.empty() || secret.size() >= kMinSecretBytes || address.is_loopback()) return {};
  return failure(
      ErrorKind::invalid_argument,
      fmt::format("{} has {} characters; ranks that connect over a network ({}) need {} or more, "
                  "as a short secret can be guessed: leave it out under gradwire run, which makes "
                  "one, or set GRADWIRE_SECRET=$(openssl rand -hex 16), once, for all ranks",
                  source, secret.size(), address.host(), kMinSecretBytes));
}

Status check_secret_at(const std::string& secret, const std::string& host,
                       const std::string& source) {
  if (secret.empty() || secret.size() >= kMinSecretBytes) return {};
  const auto addresses = net::resolve(host, 0);
  if (!addresses) return {};
  for (const net::SocketAddress& address : *addresses) {
    GRADWIRE_RETURN_IF_ERROR(check_secret(secret, address, source));
  }
  return {};
}

std::string open_store_warning(const Job& job) {
  const bool concerned = job.world_size > 1 && job.launcher_store && job.secret.empty();
  if (!concerned || is_loopback(job.master_address)) return {};
  return fmt::format(
      "any process that reaches the c10d store at {}:{} can read the secret that protects this "
      "job's connections, and join it: set GRADWIRE_SECRET=$(openssl rand -hex 16), once, for all "
      "ranks, or start them with gradwire run",
      job.master_address, job.master_port);
}

void warn_of_open_store(const Job& job) {
  const std::string warning = open_store_warning(job);
  if (job.rank == 0 && !warning.empty()) log_warning(warning);
}

}  // namespace gradwire::bootstrap
