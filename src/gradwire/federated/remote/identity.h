#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/bootstrap/handshake/handshake_messages.h"
#include "gradwire/federated/selection.h"

namespace gradwire::federated {

/// Half of an Ed25519 key pair (RFC 8032), 32 bytes.
using SigningKey = std::array<std::byte, 32>;

/// Lower-case hexadecimal digits, two for each byte.
std::string to_hex(ConstBytes bytes);
/// Inverse of to_hex(). Returns false unless `text` has the digits of so many bytes.
bool from_hex(std::string_view text, Bytes bytes);

/// A client as its server knows it: who has this file, is this client.
struct ClientIdentity {
  ClientId id = 0;
  std::string name;
  std::string secret;           ///< Shared with the server, of this client alone.
  SigningKey signing_key = {};  ///< Private; the server has the public half.
  SigningKey authority = {};    ///< Public; with it the clients' Certificates are signed.
  std::string server;           ///< HOST:PORT; empty: not known at the enrolment.
};

/// The content of the client's file.
std::string to_json(const ClientIdentity& identity);
/// Inverse of to_json(). Fails with invalid_argument.
Result<ClientIdentity> identity_from_json(std::string_view text);

/// Reads a client's file. Fails as read_private_file() does, with the remedy.
Result<ClientIdentity> read_identity(const std::filesystem::path& path);

/// For the handshake of a client's connection, at both ends.
inline bootstrap::SharedSecret shared_secret(std::string secret) {
  return {.secret = std::move(secret), .purpose = "federated"};
}

}  // namespace gradwire::federated
