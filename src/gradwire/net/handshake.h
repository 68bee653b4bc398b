#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/handshake_messages.h"
#include "gradwire/net/session_key.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// A stranger may keep a connection open for this long, whatever it sends or does not.
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

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

  /// What only the two ends of this connection know. Valid once done().
  const SessionKey& session_key() const { return session_key_; }

  const Socket& socket() const { return socket_; }
  Socket take_socket() { return std::move(socket_); }

  /// Whether anything could be sent: the connection itself stands.
  bool connected() const { return connected_; }

 protected:
  Handshake(Socket socket, std::string other_end, SharedSecret shared);
  void send(ConstBytes message);
  void expect(std::size_t size) { expected_ = size; }
  /// Both ends are sure of each other, by what both have said.
  void finish(const Transcript& said);
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
  SessionKey session_key_ = {};
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
  Status on_refusal(ConstBytes verdict) const;

  Claims claims_;
  Transcript said_;
  Proof proof_ = {};  ///< Once the answer has come.
};

/// Of a server that looks at its clients' world sizes itself.
inline constexpr int kAnyWorldSize = 0;

/// The end that accepted.
class ServerHandshake final : public Handshake {
 public:
  /// Decides about a client that has proved its claims.
  using Admit = std::function<Verdict(const Claims&)>;

  /// Clients of any world size are admitted if `world_size` is kAnyWorldSize.
  ServerHandshake(Socket socket, std::string other_end, SharedSecret shared, int world_size,
                  Admit admit);

  /// Valid once done().
  const Claims& claims() const { return claims_; }

  /// Whether the client has sent a whole first message: strangers seldom do.
  bool has_hello() const { return !said_.hello.empty(); }

 private:
  Status on_message(ConstBytes message) override;
  Status on_hello(ConstBytes hello);
  Status on_proof(ConstBytes proof);
  Status refuse_version();
  Verdict judge(const Claims& claims) const;
  void conclude(Verdict verdict);

  int world_size_;
  Admit admit_;
  Claims claims_;
  Transcript said_;
};

/// A connection whose handshake is done.
struct Greeted {
  Socket socket;
  SessionKey key = {};  ///< Handshake::session_key().
};

/// Connects and shakes hands, waiting for each step. Errors: those of Handshake, and timeout.
Result<Greeted> greet(const SocketAddress& to, const SharedSecret& shared, const Claims& claims,
                      Deadline deadline);

/// The same, where nobody needs the key.
Result<Socket> connect_and_greet(const SocketAddress& to, const SharedSecret& shared,
                                 const Claims& claims, Deadline deadline);

}  // namespace gradwire
