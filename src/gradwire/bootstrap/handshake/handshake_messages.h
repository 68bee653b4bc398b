#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/types.h"

namespace gradwire::bootstrap {

// Both ends of a new connection prove that they know the job's secret before anything else is read.
// The client proves first, so a server sends nothing that depends on the secret to an
// unauthenticated peer. Four messages of fixed size, integers little-endian:
//
//   client hello   64  magic 8, version 4, from 4, to 4, world size 4, service 4, rail 2,
//                      options 2 (bit 0: TLS after the handshake), nonce 32
//   server answer  48  magic 8, version 4, zero 4, nonce 32
//   client proof   32  HMAC-SHA256(secret, "client" | purpose | hello | answer)
//   verdict        40  verdict 4, the server's world size 4,
//                      HMAC-SHA256(secret, "server" | purpose | hello | answer | proof | those 8);
//                      for a client whose proof is wrong, world size and proof are zero
//
// The nonces bind a proof to its connection, the role to its direction, and the purpose to one
// service of the job. The server's proof covers the verdict, so it cannot be replaced. The client's
// claims count only once they are proved; only the destination process of a host is read before
// that (bootstrap/mesh/shared_port.h).
//
// This protects against unauthenticated peers that connect. A peer to which a rank connects by
// mistake, or an observer of the packets, gets a proof against which it can test guesses offline.
// The secret must therefore be long (bootstrap/job_secret.h). Against later modification of
// packets, the traffic is encrypted (net/tls_stream.h) with a key that only the two ends of this
// handshake have.

/// Version of all of gradwire's protocols. Must be the same at both ends.
inline constexpr std::uint32_t kProtocolVersion = 5;

/// A client's claims about itself. Any value may arrive: check the range before use.
struct Claims {
  Rank from = 0;  ///< The client's rank; or its id, for a server with other clients than ranks.
  Rank to = 0;
  std::int32_t world_size = 1;
  std::int32_t rail = 0;  ///< Index of the connection from that rank; 0 .. 65535.
  bool encrypts = false;  ///< TLS after the handshake; must be the same at both ends.
};

/// The server's decision, sent last.
enum class Verdict : std::uint32_t {
  accepted = 0,
  wrong_secret = 1,
  duplicate = 2,         ///< The rank is connected already.
  other_world_size = 3,  ///< The ranks were started with different world sizes.
  impossible = 4,        ///< Invalid rank, or one that may not connect here.
  later = 5,             ///< The server is about to close; its successor will accept.
  other_encryption = 6,  ///< One end encrypts, the other does not.
};

/// Inputs on which both ends must agree without sending them.
struct SharedSecret {
  std::string secret;
  std::string purpose;  ///< Purpose of the connection, for example "mesh".
};

/// The destination that a client's first message names, unauthenticated.
struct Destination {
  std::uint32_t service = 0;  ///< service_number() of the purpose.
  Rank rank = 0;

  bool operator==(const Destination&) const = default;
};

/// Identifies a job's service; FNV-1a of the purpose.
std::uint32_t service_number(std::string_view purpose);

inline constexpr std::size_t kHelloSize = 64;

/// Returns the destination of a hello (its first kHelloSize bytes); nullopt if it has another
/// protocol or version.
std::optional<Destination> destination_of(ConstBytes hello);

inline constexpr std::size_t kAnswerSize = 48;
inline constexpr std::size_t kProofSize = 32;
inline constexpr std::size_t kVerdictSize = 8 + kProofSize;

/// Bytes for which version 3 and older wait before they check an answer's version.
inline constexpr std::size_t kOldAnswerSize = 80;

using HandshakeMessage = std::vector<std::byte>;
using Proof = std::array<std::byte, kProofSize>;

/// Returns true if the received prefix of a message matches the magic.
bool has_magic(ConstBytes message);

/// Protocol version in a hello or an answer.
std::uint32_t version_in(ConstBytes message);

/// Creates the message with a fresh nonce.
HandshakeMessage make_hello(const Claims& claims, std::string_view purpose);
HandshakeMessage make_answer();

Claims claims_in(ConstBytes hello);

/// Messages exchanged so far.
struct Transcript {
  HandshakeMessage hello;
  HandshakeMessage answer;  ///< Empty until received.
};

Proof client_proof(const SharedSecret& shared, const Transcript& transcript);

/// Returns true if equal, compared in constant time.
bool is_client_proof(ConstBytes proof, const SharedSecret& shared, const Transcript& transcript);

/// Returns the verdict for a client that has sent `proof`, including the server's proof.
HandshakeMessage make_verdict(Verdict verdict, std::int32_t world_size, const SharedSecret& shared,
                              const Transcript& transcript, ConstBytes proof);

/// Returns the verdict for a wrong client proof; it does not depend on the secret.
HandshakeMessage make_refusal();

/// Returns true if a verdict is from a peer that knows the secret and answers `proof`.
bool is_server_proof(ConstBytes verdict, const SharedSecret& shared, const Transcript& transcript,
                     ConstBytes proof);

Verdict verdict_in(ConstBytes message);
std::int32_t world_size_in(ConstBytes verdict);

}  // namespace gradwire::bootstrap
