#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/federated/remote/certificate.h"
#include "gradwire/federated/remote/identity.h"

namespace gradwire::federated {

struct EnrolledClient {
  ClientId id = 0;
  std::string name;
  Certificate certificate;  ///< It has the public key.
};

/// The clients of a server: its key, a private file, and beside it a list, KEY.clients, of one line
/// for each client and for each that is revoked. Lines are only appended, each by one write, and an
/// incomplete last line is dropped. A client's secret follows from the key and the client's number
/// (HKDF-SHA256, RFC 5869), so the list has no secrets. Numbers are never used twice. Several
/// processes may change the list at once. The authority that signs Certificates has a key of its
/// own, the private file KEY.authority, which is made with the first client; only enrol() needs it,
/// so that it may be kept away from the server. Not thread-safe.
class Enrolment {
 public:
  enum class Missing : std::uint8_t { refused, created };

  /// `missing`: a key that does not exist is made, or refused. Throws Exception: refused if other
  /// users can read or write one of the files, corrupted, or system.
  Enrolment(std::filesystem::path key_file, Missing missing);

  /// Gives a client of this name a number, a secret and a key pair. `server`: HOST:PORT for its
  /// file, or empty. Throws Exception(invalid_argument) if the name is in use or is no name, or
  /// the authority's key is missing.
  ClientIdentity enrol(const std::string& name, std::string server);
  /// Throws Exception(invalid_argument) if there is no such client.
  void revoke(const std::string& name);

  /// Reads what other processes have appended. Fails as the constructor, and then knows what it
  /// knew.
  Status refresh();

  /// Null if it was unknown or revoked at the last refresh().
  const EnrolledClient* find(ClientId id) const;
  std::vector<EnrolledClient> clients() const;
  std::string secret_of(ClientId id) const;

  /// For a HandshakeServer; clients that are revoked meanwhile are refused. This must outlive it.
  bootstrap::Credentials credentials();

 private:
  struct List {
    std::map<ClientId, EnrolledClient> clients;
    ClientId next = 0;
    std::uint64_t complete_bytes = 0;  ///< Without an incomplete last line.
  };
  class Locked;

  Result<List> read() const;
  Secret authority() const;
  const EnrolledClient* find(const std::string& name) const;

  std::filesystem::path key_file_, list_file_;
  std::string key_;
  List list_;
  bool has_warned_ = false;
};

}  // namespace gradwire::federated
