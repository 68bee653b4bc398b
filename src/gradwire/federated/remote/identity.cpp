#include "gradwire/federated/remote/identity.h"

#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/job_secret.h"

namespace gradwire::federated {
namespace {

constexpr std::size_t kMaxIdentityBytes = 64 * 1024;

int value_of_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

}  // namespace

std::string to_hex(ConstBytes bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

bool from_hex(std::string_view text, Bytes bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = value_of_digit(text[2 * i]), low = value_of_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::byte>(16 * high + low);
  }
  return true;
}

std::string to_json(const ClientIdentity& identity) {
  nlohmann::ordered_json json{{"version", 1},
                              {"id", identity.id},
                              {"name", identity.name},
                              {"secret", identity.secret},
                              {"signing_key", to_hex(identity.signing_key)},
                              {"authority", to_hex(identity.authority)}};
  if (!identity.server.empty()) json["server"] = identity.server;
  return json.dump(1) + "\n";
}

Result<ClientIdentity> identity_from_json(std::string_view text) {
  return read_json_fields(text, "client identity", [](JsonFields fields) {
    fields.require_version(1);
    ClientIdentity identity;
    identity.id = fields.integer("id", 0, std::numeric_limits<ClientId>::max());
    identity.name = fields.text("name");
    identity.secret = fields.text("secret");
    if (identity.secret.size() < bootstrap::kMinSecretBytes)
      fields.refuse("secret", "that of the enrolment");
    if (!from_hex(fields.text("signing_key"), identity.signing_key))
      fields.refuse("signing_key", "64 hexadecimal digits");
    if (!from_hex(fields.text("authority"), identity.authority))
      fields.refuse("authority", "64 hexadecimal digits");
    identity.server = fields.text_or("server", "");
    fields.refuse_others();
    return identity;
  });
}

Result<ClientIdentity> read_identity(const std::filesystem::path& path) {
  const auto file = read_private_file(path.string(), kMaxIdentityBytes);
  if (!file) {
    return failure(file.error().kind,
                   fmt::format("the identity {} {}: who reads it, is this client: chmod 600 {}",
                               path.string(), file.error().message, path.string()));
  }
  if (!file->exists) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("there is no identity {}: on the server, gradwire federate enrol "
                               "KEY --client NAME writes one",
                               path.string()));
  }
  auto identity = identity_from_json(file->content);
  if (identity) return identity;
  return failure(ErrorKind::invalid_argument,
                 fmt::format("{}: {}", path.string(), identity.error().message));
}

}  // namespace gradwire::federated
