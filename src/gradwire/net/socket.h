#pragma once

#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <poll.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/net/address.h"
#include "gradwire/net/deadline.h"

namespace gradwire::net {

/// Returns the operating system's message for an errno value.
inline std::string errno_text(int error_number) {
  return std::generic_category().message(error_number);
}

/// Error of the system call that has just failed: "`what`: No such file or directory".
inline tl::unexpected<Error> system_failure(const std::string& what, int error_number = errno,
                                            ErrorKind kind = ErrorKind::system) {
  return failure(kind, what + ": " + errno_text(error_number));
}

/// Returns true for the error of a non-blocking call that would have to wait.
inline bool is_not_now(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK;
}

class SimulatedSocket;

/// Owns the file descriptor of a socket, or of another object that is polled with sockets, or a
/// socket of a simulated network (net/host_network.h). All descriptors created here are
/// non-blocking and close-on-exec; streams use TCP_NODELAY.
class Socket {
 public:
  Socket();
  explicit Socket(int descriptor);
  explicit Socket(std::unique_ptr<SimulatedSocket> simulated);
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  /// -1 if it is simulated.
  int descriptor() const { return descriptor_; }
  /// Null if it is the kernel's.
  SimulatedSocket* simulated() const { return simulated_.get(); }
  bool valid() const { return descriptor_ >= 0 || simulated_ != nullptr; }
  void close();

 private:
  int descriptor_ = -1;
  std::unique_ptr<SimulatedSocket> simulated_;
};

/// Maximum unsent bytes in the kernel before a stream stops being writable (TCP_NOTSENT_LOWAT). A
/// thread that shares its core may be rescheduled only after milliseconds. Still, among four hosts
/// at 2.5 Gb/s on two cores, 256 KiB reaches 95 % of the rate, as 1 MiB does. A high-priority
/// operation waits for at most this many bytes on each stream: 2 ms at 1 Gb/s. With 1 MiB, the
/// gradients of the first layers were so late that ResNet-50 trained at 93 % instead of 96 % of its
/// speed (docs/ladder.md). Sent but unacknowledged bytes do not count, so the bandwidth-delay
/// product does not matter.
inline constexpr int kUnsentLowWater = 256 * 1024;

/// The same if several rails share a message: bytes queued on a slow rail are late, so fewer are
/// allowed.
inline constexpr int kUnsentLowWaterOfRails = 128 * 1024;

/// With several rails the kernel must not break a connection during an outage: the rail recovers
/// when the link is back. The executor detects a dead peer itself, by silence on all rails.
inline constexpr Duration kRailOutageMax = std::chrono::hours(24);

/// Configures a stream between ranks: cubic congestion control if available, and a short queue of
/// unsent bytes. (bbr, the default of some systems, limits loopback and LAN links to a third of
/// their rate.) After `dead_after` without an acknowledgement, or with a peer whose receive buffer
/// stays full, the kernel breaks the connection with ETIMEDOUT; zero: the kernel's own, long
/// timeouts. Options that the kernel does not support are skipped.
void tune_stream(const Socket& socket, Duration dead_after, int unsent_low_water = kUnsentLowWater);

/// Enables keep-alive: the kernel breaks the connection with ETIMEDOUT if the peer does not respond
/// for about `dead_after` (at least 3 s). For connections that may be idle for long.
void keep_alive(const Socket& socket, Duration dead_after);

/// Restricts the socket to packets that leave and arrive by this network interface, whatever the
/// routes say. Fails with system (before Linux 5.7 it required CAP_NET_RAW).
Status bind_to_interface(const Socket& socket, const std::string& interface);

/// Listens on exactly this address; never on all (0.0.0.0, ::). Port 0: any free one. Fails with
/// invalid_argument if the port is in use or the address is not local, or with system.
Result<Socket> listen_on(const SocketAddress& address);

/// Returns a port that is free at this local address now. Fails as listen_on().
Result<std::uint16_t> free_port(const SocketAddress& address);

struct Accepted {
  Socket socket;
  SocketAddress from;
};

/// Returns the next pending connection, or nullopt if there is none. Fails with system (out of
/// descriptors).
Result<std::optional<Accepted>> accept_one(const Socket& listener);

/// Begins to connect, from the local address `source` if it is valid, and bound to `interface` if
/// it is not empty and that is permitted. The socket becomes writable once the connection is
/// established or has failed; the first send or receive then reports the failure. Fails with
/// disconnected or system (out of descriptors or memory, which may be temporary).
Result<Socket> start_connect(const SocketAddress& to, const SocketAddress& source = {},
                             const std::string& interface = "");

/// start_connect(), then waits until the connection is established. Fails with disconnected,
/// timeout or system.
Result<Socket> connect_to(const SocketAddress& to, Deadline deadline,
                          const SocketAddress& source = {});

/// Result of one non-blocking send or receive.
struct Transfer {
  std::size_t bytes = 0;  ///< 0: would block, or `ended`.
  bool ended = false;     ///< The peer closed its half, or the connection broke.
  int cause = 0;          ///< errno of a broken connection; 0 after an orderly end.
};

/// Sends or receives some of `bytes`, which must not be empty.
Transfer send_some(const Socket& socket, ConstBytes bytes);
Transfer receive_some(const Socket& socket, Bytes bytes);

/// A stream or listener of a simulated network. The functions of this file call it in place of the
/// kernel; options that only tune have no effect on it. Its destructor closes it.
class SimulatedSocket {
 public:
  virtual ~SimulatedSocket() = default;
  virtual Transfer send(ConstBytes bytes) = 0;
  virtual Transfer receive(Bytes bytes) = 0;
  virtual Transfer peek(Bytes bytes) = 0;
  virtual Result<std::optional<Accepted>> accept() = 0;
  virtual SocketAddress local_address() const = 0;
  virtual SocketAddress peer_address() const = 0;
  /// poll(2) for sockets of this one's network: sets `entries[i].revents` for `sockets[i]`, which
  /// is null where there is none.
  virtual void poll(std::span<pollfd> entries, std::span<SimulatedSocket* const> sockets,
                    Duration timeout) = 0;
};

/// Addresses of this end and of the peer; not valid if not connected.
SocketAddress local_address(const Socket& socket);
SocketAddress peer_address(const Socket& socket);

/// Returns true if the socket is connected to itself. That can happen when it repeatedly connects
/// to an unused ephemeral port on its own host (TCP simultaneous open with itself).
bool connected_to_itself(const Socket& socket);

/// Returns true if the peer has closed the connection or it broke, with no data left to read.
bool has_ended(const Socket& socket);

/// Waits for `events` (of poll(2)) on one socket. Returns false when the deadline passes.
bool wait_for(const Socket& socket, short events, Deadline deadline);

/// Returns a sentence for users about the end of the connection to `name`. `cause` is an errno
/// value; 0 is the peer's orderly end of stream. `dead_after` as for tune_stream().
std::string describe_broken_connection(int cause, const std::string& name, Duration dead_after);

/// Discards received data without copying it (MSG_TRUNC, see tcp(7)). Returns false at the end of
/// the stream, orderly or not.
bool discard_input(int descriptor);

/// Waits until the peers' kernels have received everything written to `streams`, which must be shut
/// down for writing and have POLLIN as events. There is no event for that, so it polls every
/// millisecond; usually the first check suffices.
void linger(std::vector<pollfd> streams, Deadline deadline);

}  // namespace gradwire::net
