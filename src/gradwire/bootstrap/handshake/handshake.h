#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/bootstrap/handshake/handshake_messages.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"
#include "gradwire/net/payload_checksum.h"
#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// Maximum time that an unauthenticated peer may keep a connection open, whatever it sends.
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

/// One end of a handshake over a non-blocking socket, driven by events. Owns the socket until it is
/// taken.
class Handshake {
 public:
  virtual ~Handshake() = default;

  /// Advances as far as possible without waiting. After an error the connection is unusable. Fails
  /// with refused (wrong secret, or not admitted), mismatch (of version or world size), corrupted
  /// (the peer is not gradwire), disconnected or invalid_argument (duplicate).
  Status advance();

  bool done() const { return finished_ && outbox_.empty(); }

  /// Returns the poll(2) events for which advance() waits.
  short wanted_events() const;

  /// Key known only to the two ends of this connection. Valid once done().
  const net::SessionKey& session_key() const { return session_key_; }

  const net::Socket& socket() const { return socket_; }
  net::Socket take_socket() { return std::move(socket_); }

  /// Returns true if the connection is established (some bytes were sent).
  bool connected() const { return connected_; }

 protected:
  Handshake(net::Socket socket, std::string other_end, SharedSecret shared);
  void send(ConstBytes message);
  void expect(std::size_t size) { expected_ = size; }
  /// Completes the handshake and derives the session key from the transcript.
  void finish(const Transcript& transcript);
  /// Fails after the messages passed to send() are sent.
  void fail_after_sending(ErrorKind kind, std::string message);
  const SharedSecret& shared() const { return shared_; }
  void set_shared(SharedSecret shared) { shared_ = std::move(shared); }
  const std::string& other_end() const { return other_end_; }

 private:
  /// Called with each message of the expected size.
  virtual Status on_message(ConstBytes message) = 0;

  Status flush();
  Result<bool> receive();
  Status check_magic() const;

  net::Socket socket_;
  std::string other_end_;
  SharedSecret shared_;
  std::vector<std::byte> outbox_;
  std::vector<std::byte> inbox_;
  std::size_t expected_ = 0;
  std::size_t messages_read_ = 0;
  std::optional<Error> pending_error_;
  net::SessionKey session_key_ = {};
  bool finished_ = false;
  bool connected_ = false;
};

/// The connecting end. The socket may still be connecting.
class ClientHandshake final : public Handshake {
 public:
  /// `other_end` names the server in messages.
  ClientHandshake(net::Socket socket, std::string other_end, SharedSecret shared, Claims claims);

 private:
  Status on_message(ConstBytes message) override;
  Status on_answer(ConstBytes answer);
  Status on_verdict(ConstBytes verdict);
  Status on_refusal(ConstBytes verdict) const;

  Claims claims_;
  Transcript transcript_;
  Proof proof_ = {};  ///< Set once the answer is received.
};

/// The world size that a client claims which is not a rank of a job.
inline constexpr int kNoWorld = 0;

/// The verdict on a client that must be a rank of a job of `world_size`.
Verdict check_rank(const Claims& claims, int world_size);

/// Returns the secret that the client with these claims must know; nullopt if there is no such
/// client, which then learns no more than one with a wrong secret. The claims are not yet proved.
using Credentials = std::function<std::optional<SharedSecret>(const Claims&)>;

/// The same secret for all clients.
Credentials one_secret(SharedSecret shared);

/// The accepting end.
class ServerHandshake final : public Handshake {
 public:
  /// Decides on a client that has proved its claims.
  using Admit = std::function<Verdict(const Claims&)>;

  /// `world_size`: the server's own, which a refused client is told.
  ServerHandshake(net::Socket socket, std::string other_end, Credentials credentials,
                  int world_size, Admit admit);

  /// Valid once done().
  const Claims& claims() const { return claims_; }

  /// Returns true if the client has sent a complete first message; unauthenticated peers rarely do.
  bool has_hello() const { return !transcript_.hello.empty(); }

 private:
  Status on_message(ConstBytes message) override;
  Status on_hello(ConstBytes hello);
  Status on_proof(ConstBytes proof);
  Status refuse_version();
  void conclude(Verdict verdict);

  Credentials credentials_;
  int world_size_;
  Admit admit_;
  Claims claims_;
  bool is_known_ = false;  ///< There are credentials for the claims.
  Transcript transcript_;
};

/// A connection after its handshake.
struct AuthenticatedSocket {
  net::Socket socket;
  net::SessionKey key = {};  ///< Handshake::session_key().
};

/// Connects and performs the handshake, blocking. Fails like Handshake, and with timeout.
Result<AuthenticatedSocket> connect_and_authenticate(const net::HostNetwork& network,
                                                     const net::SocketAddress& to,
                                                     const SharedSecret& shared,
                                                     const Claims& claims, net::Deadline deadline);

/// connect_and_authenticate() for callers that do not need the key.
Result<net::Socket> connect_authenticated(const net::HostNetwork& network,
                                          const net::SocketAddress& to, const SharedSecret& shared,
                                          const Claims& claims, net::Deadline deadline);

}  // namespace gradwire::bootstrap
