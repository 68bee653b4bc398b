#include "gradwire/bootstrap/handshake/handshake_messages.h"

#include <algorithm>
#include <cstring>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "gradwire/base/check.h"

namespace gradwire::bootstrap {
namespace {

constexpr std::string_view kMagic = "GRADWIRE";
constexpr std::size_t kNonceSize = 32;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kServiceAt = 24;
constexpr std::size_t kRailAt = 28;
constexpr std::size_t kOptionsAt = 30;
constexpr std::uint16_t kEncrypts = 1;
constexpr std::size_t kHelloNonceAt = 32;
static_assert(kHelloSize == kHelloNonceAt + kNonceSize);
constexpr std::size_t kAnswerNonceAt = 16;
static_assert(kAnswerSize == kAnswerNonceAt + kNonceSize);
constexpr std::size_t kVerdictProofAt = 8;
static_assert(kVerdictSize == kVerdictProofAt + kProofSize);

void put(std::byte* at, std::int32_t value) {
  store_little_endian(at, static_cast<std::uint32_t>(value));
}

std::int32_t get_signed(const std::byte* at) {
  return static_cast<std::int32_t>(load_little_endian<std::uint32_t>(at));
}

void put_magic_and_version(HandshakeMessage& message) {
  std::memcpy(message.data(), kMagic.data(), kMagic.size());
  store_little_endian(message.data() + kVersionAt, kProtocolVersion);
}

void put_nonce(std::byte* at) {
  // Without random numbers no handshake can be trusted.
  GRADWIRE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(at), kNonceSize) == 1);
}

/// Each part of variable size is preceded by its size, so that the encoding is unambiguous.
void append_sized(HandshakeMessage& message, std::string_view text) {
  HandshakeMessage size(8);
  store_little_endian(size.data(), static_cast<std::uint64_t>(text.size()));
  message.insert(message.end(), size.begin(), size.end());
  const auto bytes = std::as_bytes(std::span(text));
  message.insert(message.end(), bytes.begin(), bytes.end());
}

/// `rest`: additional input of later messages.
Proof prove(std::string_view role, const SharedSecret& shared, const Transcript& transcript,
            ConstBytes rest = {}) {
  HandshakeMessage input;
  append_sized(input, role);
  append_sized(input, shared.purpose);
  for (const ConstBytes part :
       {ConstBytes(transcript.hello), ConstBytes(transcript.answer), rest}) {
    input.insert(input.end(), part.begin(), part.end());
  }
  Proof proof;
  unsigned int size = 0;
  const auto* made =
      HMAC(EVP_sha256(), shared.secret.data(), static_cast<int>(shared.secret.size()),
           reinterpret_cast<const unsigned char*>(input.data()), input.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &size);
  GRADWIRE_CHECK(made != nullptr && size == kProofSize);
  return proof;
}

/// Returns the proof at the end of a verdict that answers `proof`.
Proof verdict_proof(ConstBytes verdict, const SharedSecret& shared, const Transcript& transcript,
                    ConstBytes proof) {
  HandshakeMessage rest(proof.begin(), proof.end());
  rest.insert(rest.end(), verdict.begin(), verdict.begin() + kVerdictProofAt);
  return prove("server", shared, transcript, rest);
}

bool equal(const Proof& ours, ConstBytes theirs) {
  return theirs.size() == ours.size() &&
         CRYPTO_memcmp(ours.data(), theirs.data(), ours.size()) == 0;
}

}  // namespace

std::uint32_t service_number(std::string_view purpose) {
  std::uint32_t hash = 0x811C9DC5u;
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

std::optional<Destination> destination_of(ConstBytes hello) {
  const bool ours =
      hello.size() >= kHelloSize && has_magic(hello) && version_in(hello) == kProtocolVersion;
  if (!ours) return std::nullopt;
  return Destination{.service = load_little_endian<std::uint32_t>(hello.data() + kServiceAt),
                     .rank = claims_in(hello).to};
}

bool has_magic(ConstBytes message) {
  const std::size_t count = std::min(message.size(), kMagic.size());
  return std::memcmp(message.data(), kMagic.data(), count) == 0;
}

std::uint32_t version_in(ConstBytes message) {
  return load_little_endian<std::uint32_t>(message.data() + kVersionAt);
}

HandshakeMessage make_hello(const Claims& claims, std::string_view purpose) {
  HandshakeMessage hello(kHelloSize);
  put_magic_and_version(hello);
  put(hello.data() + 12, claims.from);
  put(hello.data() + 16, claims.to);
  put(hello.data() + 20, claims.world_size);
  store_little_endian(hello.data() + kServiceAt, service_number(purpose));
  store_little_endian(hello.data() + kRailAt, static_cast<std::uint16_t>(claims.rail));
  store_little_endian(hello.data() + kOptionsAt, claims.encrypts ? kEncrypts : std::uint16_t{0});
  put_nonce(hello.data() + kHelloNonceAt);
  return hello;
}

Claims claims_in(ConstBytes hello) {
  const auto options = load_little_endian<std::uint16_t>(hello.data() + kOptionsAt);
  return {.from = get_signed(hello.data() + 12),
          .to = get_signed(hello.data() + 16),
          .world_size = get_signed(hello.data() + 20),
          .rail = load_little_endian<std::uint16_t>(hello.data() + kRailAt),
          .encrypts = (options & kEncrypts) != 0};
}

HandshakeMessage make_answer() {
  HandshakeMessage answer(kAnswerSize);
  put_magic_and_version(answer);
  put_nonce(answer.data() + kAnswerNonceAt);
  return answer;
}

Proof client_proof(const SharedSecret& shared, const Transcript& transcript) {
  return prove("client", shared, transcript);
}

bool is_client_proof(ConstBytes proof, const SharedSecret& shared, const Transcript& transcript) {
  return equal(client_proof(shared, transcript), proof);
}

HandshakeMessage make_verdict(Verdict verdict, std::int32_t world_size, const SharedSecret& shared,
                              const Transcript& transcript, ConstBytes proof) {
  HandshakeMessage message(kVerdictSize);
  store_little_endian(message.data(), static_cast<std::uint32_t>(verdict));
  put(message.data() + 4, world_size);
  const Proof ours = verdict_proof(message, shared, transcript, proof);
  std::memcpy(message.data() + kVerdictProofAt, ours.data(), ours.size());
  return message;
}

HandshakeMessage make_refusal() {
  HandshakeMessage message(kVerdictSize);
  store_little_endian(message.data(), static_cast<std::uint32_t>(Verdict::wrong_secret));
  return message;
}

bool is_server_proof(ConstBytes verdict, const SharedSecret& shared, const Transcript& transcript,
                     ConstBytes proof) {
  return equal(verdict_proof(verdict, shared, transcript, proof), verdict.subspan(kVerdictProofAt));
}

Verdict verdict_in(ConstBytes message) {
  return static_cast<Verdict>(load_little_endian<std::uint32_t>(message.data()));
}

std::int32_t world_size_in(ConstBytes verdict) {
  return get_signed(verdict.data() + 4);
}

}  // namespace gradwire::bootstrap
