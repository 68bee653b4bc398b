#include "gradwire/federated/remote/certificate.h"

#include <cstring>
#include <vector>

namespace gradwire::federated {
namespace {

/// The bytes that the authority signs.
std::vector<std::byte> certified_bytes(ClientId client, const PublicKey& key) {
  constexpr std::string_view kPurpose = "gradwire enrolled key";
  std::vector<std::byte> bytes(kPurpose.size() + sizeof(std::uint32_t) + key.size());
  std::byte* at = bytes.data();
  std::memcpy(at, kPurpose.data(), kPurpose.size());
  store_little_endian(at + kPurpose.size(), static_cast<std::uint32_t>(client));
  std::memcpy(at + kPurpose.size() + sizeof(std::uint32_t), key.data(), key.size());
  return bytes;
}

}  // namespace

Result<Certificate> certify(const Secret& authority, ClientId client, const PublicKey& key) {
  GRADWIRE_ASSIGN_OR_RETURN(const Signature signature,
                            ed25519_sign(authority, certified_bytes(client, key)));
  return Certificate{key, signature};
}

bool is_valid(const Certificate& certificate, ClientId client, const PublicKey& authority) {
  return ed25519_verifies(authority, certified_bytes(client, certificate.key),
                          certificate.signature);
}

void append(std::string& packed, const Certificate& certificate) {
  const auto add = [&](const auto& bytes) {
    packed.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  add(certificate.key);
  add(certificate.signature);
}

std::optional<Certificate> take_certificate(std::string_view& packed) {
  if (packed.size() < kCertificateBytes) return std::nullopt;
  Certificate taken;
  std::memcpy(taken.key.data(), packed.data(), taken.key.size());
  std::memcpy(taken.signature.data(), packed.data() + taken.key.size(), taken.signature.size());
  packed.remove_prefix(kCertificateBytes);
  return taken;
}

}  // namespace gradwire::federated
