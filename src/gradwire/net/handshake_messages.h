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

namespace gradwire {

// Both ends of a fresh connection prove that they know the job's secret before anything else is
// read. Four messages, each of a fixed size, integers little-endian:
//
//   client hello   64  magic 8, version 4, from 4, to 4, world size 4, service 4, rail 2,
//                      options 2 (bit 0: encrypts what follows), nonce 32
//   server answer  80  magic 8, version 4, zero 4, nonce 32, proof 32
//   client proof   32  proof (all zero: "your proof is wrong", after which the client leaves)
//   verdict         8  verdict 4, the server's world size 4
//
// A proof is HMAC-SHA256(secret, role | purpose | hello | answer without its proof): either nonce
// makes it worthless for another connection, the role for the other direction, the purpose for
// another service of the job. What the client claims counts only once it is proved; only which
// process of a host a connection is for is looked at before (net/shared_port.h). That protects
// against strangers that connect; against those who can read or change packets on the way, what
// follows is encrypted (net/tls_stream.h) with a key that only both ends of this handshake have.

/// The version of everything that gradwire says over a connection. Both ends must have the same.
inline constexpr std::uint32_t kProtocolVersion = 4;

/// What a client says about itself. Any value may arrive: check the range before use.
struct Claims {
  Rank from = 0;
  Rank to = 0;
  std::int32_t world_size = 1;
  std::int32_t rail = 0;  ///< Which of the connections from that rank this is; 0 .. 65535.
  bool encrypts = false;  ///< What follows the handshake; both ends must want the same.
};

/// What the server says at last.
enum class Verdict : std::uint32_t {
  accepted = 0,
  wrong_secret = 1,
  duplicate = 2,         ///< That rank is connected already.
  other_world_size = 3,  ///< The ranks were started with different world sizes.
  impossible = 4,        ///< No such rank, or not one that may connect here.
  later = 5,             ///< The server is about to close; its successor will accept.
  other_encryption = 6,  ///< One end encrypts, the other does not.
};

/// What both ends must agree on without saying it.
struct SharedSecret {
  std::string secret;
  std::string purpose;  ///< What the connection is for, "mesh" say.
};

/// What a client's first message says, unproved, about whom it looks for.
struct Destination {
  std::uint32_t service = 0;  ///< service_number() of the purpose.
  Rank rank = 0;

  bool operator==(const Destination&) const = default;
};

/// Tells a job's services apart; FNV-1a of the purpose.
std::uint32_t service_number(std::string_view purpose);

inline constexpr std::size_t kHelloSize = 64;

/// Whom a hello (its first kHelloSize bytes) is for; nothing if it is none of our protocol's and
/// version.
std::optional<Destination> destination_of(ConstBytes hello);

inline constexpr std::size_t kProofSize = 32;
inline constexpr std::size_t kAnswerHeadSize = 48;  ///< Of an answer, what its proof is about.
inline constexpr std::size_t kAnswerSize = kAnswerHeadSize + kProofSize;
inline constexpr std::size_t kVerdictSize = 8;

using HandshakeMessage = std::vector<std::byte>;
using Proof = std::array<std::byte, kProofSize>;

/// Whether a message begins as all of ours do, as far as it has come.
bool has_our_magic(ConstBytes message);

/// Of a hello or an answer.
std::uint32_t version_in(ConstBytes message);

/// With a fresh nonce.
HandshakeMessage make_hello(const Claims& claims, std::string_view purpose);
HandshakeMessage make_answer_head();

Claims claims_in(ConstBytes hello);

Proof server_proof(const SharedSecret& shared, ConstBytes hello, ConstBytes answer_head);
Proof client_proof(const SharedSecret& shared, ConstBytes hello, ConstBytes answer_head);

/// In a time that does not tell where they differ.
bool equal(const Proof& ours, ConstBytes theirs);

HandshakeMessage make_verdict(Verdict verdict, std::int32_t world_size);
Verdict verdict_in(ConstBytes message);
std::int32_t world_size_in(ConstBytes verdict);

}  // namespace gradwire
