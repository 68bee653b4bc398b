#include "gradwire/federated/remote/enrolment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include "gradwire/base/check.h"
#include "gradwire/base/file.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/unique_fd.h"
#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/net/payload_checksum.h"

namespace gradwire::federated {
namespace {

constexpr std::size_t kMaxName = 64;
constexpr std::string_view kSecretOf = "gradwire federated client ";
constexpr const char* kKeyRemedy =
    "give the key of the server, a private file; with another key all clients are enrolled anew";

struct KeyPair {
  SigningKey secret = {}, open = {};
};

KeyPair make_key_pair() {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> pair(
      EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), &EVP_PKEY_free);
  KeyPair made;
  std::size_t secret_size = made.secret.size(), open_size = made.open.size();
  const auto at = [](SigningKey& key) { return reinterpret_cast<unsigned char*>(key.data()); };
  // Without random numbers nobody can be enrolled.
  GRADWIRE_CHECK(pair &&
                 EVP_PKEY_get_raw_private_key(pair.get(), at(made.secret), &secret_size) == 1 &&
                 EVP_PKEY_get_raw_public_key(pair.get(), at(made.open), &open_size) == 1 &&
                 secret_size == made.secret.size() && open_size == made.open.size());
  return made;
}

/// Names are part of log lines and of file names.
void check_name(const std::string& name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (name.empty() || name.size() > kMaxName || !std::ranges::all_of(name, is_plain)) {
    refuse("a client's name has 1 to {} letters, digits and characters of -_. alone, not \"{}\"",
           kMaxName, name);
  }
}

Exception list_error(const std::filesystem::path& path, const char* what) {
  return Exception(ErrorKind::system, fmt::format("cannot {} the list of clients {}: {}", what,
                                                  path.string(), std::strerror(errno)));
}

}  // namespace

/// The list, open for a change; others wait.
class Enrolment::Locked {
 public:
  explicit Locked(const std::filesystem::path& path)
      : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)) {
    if (!file_.valid() || ::flock(file_.get(), LOCK_EX) != 0) throw list_error(path_, "open");
  }

  /// One line in place of whatever follows `complete_bytes`: a crash may have cut a line.
  void append(std::uint64_t complete_bytes, const nlohmann::ordered_json& line) {
    const std::string text = line.dump() + "\n";
    const auto at = static_cast<off_t>(complete_bytes);
    if (::ftruncate(file_.get(), at) != 0 ||
        ::pwrite(file_.get(), text.data(), text.size(), at) != static_cast<ssize_t>(text.size()) ||
        ::fsync(file_.get()) != 0) {
      throw list_error(path_, "write");
    }
  }

 private:
  const std::filesystem::path& path_;
  UniqueFd file_;
};

Enrolment::Enrolment(std::filesystem::path key_file, Missing missing)
    : key_file_(std::move(key_file)), list_file_(key_file_.string() + ".clients") {
  if (missing == Missing::refused && !std::filesystem::exists(key_file_)) {
    refuse(
        "there is no server key {0}: gradwire federate enrol {0} --client NAME makes it, and "
        "enrols a client",
        key_file_.string());
  }
  key_ = bootstrap::private_key_in(key_file_.string(), kKeyRemedy);
  value_or_throw(refresh());
}

Result<Enrolment::List> Enrolment::read() const {
  std::error_code none;
  const auto size = std::filesystem::file_size(list_file_, none);
  const auto file = read_private_file(list_file_.string(), none ? 0 : size);
  if (!file) {
    return failure(file.error().kind, fmt::format("the list of clients {} {}", list_file_.string(),
                                                  file.error().message));
  }
  List list;
  std::string_view rest = file->content;
  for (int number = 1; rest.find('\n') != std::string_view::npos; ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const auto read = read_json_fields(line, "line", [&](JsonFields fields) {
      if (fields.has("revoked")) {
        list.clients.erase(fields.integer("revoked", 0, std::numeric_limits<ClientId>::max()));
        return 0;
      }
      EnrolledClient one{.id = fields.integer("id", 0, std::numeric_limits<ClientId>::max() - 1),
                         .name = fields.text("name")};
      if (!from_hex(fields.text("public_key"), one.certificate.key))
        fields.refuse("public_key", "64 hexadecimal digits");
      if (!from_hex(fields.text("certificate"), one.certificate.signature))
        fields.refuse("certificate", "128 hexadecimal digits");
      list.next = std::max(list.next, one.id + 1);
      list.clients[one.id] = std::move(one);
      return 0;
    });
    if (!read) {
      return failure(ErrorKind::corrupted,
                     fmt::format("{}:{}: {}: take the line out; its client is enrolled anew",
                                 list_file_.string(), number, read.error().message));
    }
    list.complete_bytes += line.size() + 1;
    rest.remove_prefix(line.size() + 1);
  }
  return list;
}

Status Enrolment::refresh() {
  std::error_code none;
  const auto size = std::filesystem::file_size(list_file_, none);
  if (none || size == list_.complete_bytes) return {};  // Lines are only appended.
  GRADWIRE_ASSIGN_OR_RETURN(list_, read());
  return {};
}

const EnrolledClient* Enrolment::find(ClientId id) const {
  const auto found = list_.clients.find(id);
  return found == list_.clients.end() ? nullptr : &found->second;
}

const EnrolledClient* Enrolment::find(const std::string& name) const {
  const auto found = std::ranges::find_if(
      list_.clients, [&](const auto& entry) { return entry.second.name == name; });
  return found == list_.clients.end() ? nullptr : &found->second;
}

std::vector<EnrolledClient> Enrolment::clients() const {
  std::vector<EnrolledClient> all;
  for (const auto& [id, client] : list_.clients) all.push_back(client);
  return all;
}

std::string Enrolment::secret_of(ClientId id) const {
  const std::string salt = fmt::format("{}{}", kSecretOf, id);
  return to_hex(net::derive_session_key(key_, std::as_bytes(std::span(salt))));
}

ClientIdentity Enrolment::enrol(const std::string& name, std::string server) {
  check_name(name);
  Locked list(list_file_);
  value_or_throw(refresh());
  if (find(name) != nullptr) {
    refuse("client {} is enrolled already: --revoke {} first, or choose another name", name, name);
  }
  const Secret signer = authority();
  const KeyPair keys = make_key_pair();
  const ClientId id = list_.next;
  const Certificate certificate = value_or_throw(certify(signer, id, keys.open));
  list.append(list_.complete_bytes, {{"id", id},
                                     {"name", name},
                                     {"public_key", to_hex(keys.open)},
                                     {"certificate", to_hex(certificate.signature)}});
  value_or_throw(refresh());
  return {.id = id,
          .name = name,
          .secret = secret_of(id),
          .signing_key = keys.secret,
          .authority = value_or_throw(ed25519_public(signer)),
          .server = std::move(server)};
}

/// Clients know one authority alone, so that another key would make strangers of the later ones.
Secret Enrolment::authority() const {
  const std::string file = key_file_.string() + ".authority";
  if (list_.next > 0 && !std::filesystem::exists(file)) {
    refuse(
        "clients are enrolled already, and the key {} that has signed theirs is not here: bring it "
        "back to enrol more; a server runs without it",
        file);
  }
  Secret key;
  if (!from_hex(bootstrap::private_key_in(file, kKeyRemedy), key.bytes()))
    refuse("{} is no key of 64 hexadecimal digits: {}", file, kKeyRemedy);
  return key;
}

void Enrolment::revoke(const std::string& name) {
  Locked list(list_file_);
  value_or_throw(refresh());
  const EnrolledClient* client = find(name);
  if (client == nullptr) refuse("no client is enrolled as \"{}\": --list prints all", name);
  list.append(list_.complete_bytes, {{"revoked", client->id}});
  value_or_throw(refresh());
}

bootstrap::Credentials Enrolment::credentials() {
  return [this](const bootstrap::Claims& claims) -> std::optional<bootstrap::SharedSecret> {
    if (const Status read = refresh(); !read && !std::exchange(has_warned_, true)) {
      log_warning("{}; clients are admitted as before", read.error().message);
    }
    if (claims.world_size != bootstrap::kNoWorld || find(claims.from) == nullptr)
      return std::nullopt;
    return shared_secret(secret_of(claims.from));
  };
}

}  // namespace gradwire::federated
