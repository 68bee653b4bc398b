#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire {

// Both ends of a fresh connection prove that they know the job's secret before anything else is
// read. Four messages, each of a fixed size, integers little-endian:
//
//   client hello   64  magic 8, version 4, from 4, to 4, world size 4, service 4, rail 4, nonce 32
//   server answer  80  magic 8, version 4, zero 4, nonce 32, proof 32
//   client proof   32  proof (all zero: "your proof is wrong", after which the client leaves)
//   verdict         8  verdict 4, the server's world size 4
//
// A proof is HMAC-SHA256(secret, role | purpose | hello | answer without its proof): either nonce
// makes it worthless for another connection, the role for the other direction, the purpose for
// another service of the job. What the client claims counts only once it is proved; only which
// process of a host a connection is for is looked at before (net/shared_port.h). The stream is
// authenticated at its start, not encrypted: it protects against strangers that connect, not
// against those who can change packets on the way.

/// The version of everything that gradwire says over a connection. Both ends must have the same.
inline constexpr std::uint32_t kProtocolVersion = 2;

/// A stranger may keep a connection open for this long, whatever it sends or does not.
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

/// What a client says about itself. Any value may arrive: check the range before use.
struct Claims {
  Rank from = 0;
  Rank to = 0;
  std::int32_t world_size = 1;
  std::int32_t rail = 0;  ///< Which of the connections from that rank this is.
};

/// What the server says at last.
enum class Verdict : std::uint32_t {
  accepted = 0,
  wrong_secret = 1,
  duplicate = 2,         ///< That rank is connected already.
  other_world_size = 3,  ///< The ranks were started with different world sizes.
  impossible = 4,        ///< No such rank, or not one that may connect here.
  later = 5,             ///< The server is about to close; its successor will accept.
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

/// One end's side of a handshake over a non-blocking socket, moved on by events. Owns the socket
/// until taken.
class Handshake {
 public:
  virtual ~Handshake() = default;

  /// Goes as far as it can without waiting. After an error the connection is of no use.
  /// Errors: refused (wrong secret, or not admitted), mismatch (version, world size), corrupted
  /// (not gradwire at the other end), disconnected, invalid_argument (duplicate).
  Status advance();

  bool done() const { return finished_ && outbox_.empty(); }

  /// What advance() waits for, as poll(2)'s events.
  short wanted_events() const;

  const Socket& socket() const { return socket_; }
  Socket take_socket() { return std::move(socket_); }

  /// Whether anything could be sent: the connection itself stands.
  bool connected() const { return connected_; }

 protected:
  Handshake(Socket socket, std::string other_end, SharedSecret shared);
  void send(ConstBytes message);
  void expect(std::size_t size) { expected_ = size; }
  void finish() { finished_ = true; }
  /// Sends what was handed to send(), then fails.
  void fail_after_sending(ErrorKind kind, std::string message);
  const SharedSecret& shared() const { return shared_; }
  const std::string& other_end() const { return other_end_; }

 private:
  /// A message of the expected size has come.
  virtual Status on_message(ConstBytes message) = 0;

  Status flush();
  Result<bool> receive();
  Status check_magic() const;

  Socket socket_;
  std::string other_end_;
  SharedSecret shared_;
  std::vector<std::byte> outbox_;
  std::vector<std::byte> inbox_;
  std::size_t expected_ = 0;
  std::size_t messages_read_ = 0;
  std::optional<Error> failing_;
  bool finished_ = false;
  bool connected_ = false;
};

/// The end that connected. The socket may still be connecting.
class ClientHandshake final : public Handshake {
 public:
  /// `other_end` names the server in messages.
  ClientHandshake(Socket socket, std::string other_end, SharedSecret shared, Claims claims);

 private:
  Status on_message(ConstBytes message) override;
  Status on_answer(ConstBytes answer);
  Status on_verdict(ConstBytes verdict);

  Claims claims_;
  std::vector<std::byte> hello_;
  bool proved_ = false;
};

/// The end that accepted.
class ServerHandshake final : public Handshake {
 public:
  /// Decides about a client that has proved its claims.
  using Admit = std::function<Verdict(const Claims&)>;

  ServerHandshake(Socket socket, std::string other_end, SharedSecret shared, int world_size,
                  Admit admit);

  /// Valid once done().
  const Claims& claims() const { return claims_; }

 private:
  Status on_message(ConstBytes message) override;
  Status on_hello(ConstBytes hello);
  Status on_proof(ConstBytes proof);
  Verdict judge(ConstBytes proof) const;

  int world_size_;
  Admit admit_;
  Claims claims_;
  std::vector<std::byte> hello_;
  std::vector<std::byte> answer_head_;
};

/// Connects and shakes hands, waiting for each step. Errors: those of Handshake, and timeout.
Result<Socket> connect_and_greet(const SocketAddress& to, const SharedSecret& shared,
                                 const Claims& claims, Deadline deadline);

}  // namespace gradwire
