#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradwire/federated/client_id.h"
#include "gradwire/federated/secure/crypto.h"

namespace gradwire::federated {

/// A client's signing key, signed by the authority that has enrolled the client. Other clients know
/// the authority's key from their own enrolment, and need not trust the server for this one.
struct Certificate {
  PublicKey key{};
  Signature signature{};  ///< The authority's, of Ed25519.
  bool operator==(const Certificate&) const = default;
};

inline constexpr std::size_t kCertificateBytes = sizeof(Certificate);

/// Fails with system.
Result<Certificate> certify(const Secret& authority, ClientId client, const PublicKey& key);
/// Returns true if the authority has signed that this is the client's key.
bool is_valid(const Certificate& certificate, ClientId client, const PublicKey& authority);

/// Certificates as bytes, one after the other.
void append(std::string& packed, const Certificate& certificate);
/// Takes one from the front; nullopt if there is none.
std::optional<Certificate> take_certificate(std::string_view& packed);

}  // namespace gradwire::federated
