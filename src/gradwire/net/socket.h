#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/net/address.h"
#include "gradwire/net/deadline.h"

namespace gradwire {

/// Owns a file descriptor of a socket, or of something polled beside one. All that is made here is
/// non-blocking and closed on exec, and every stream sends small messages without delay.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int descriptor() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

/// Bytes that wait in the kernel unsent before it says "not now". A thread that shares its core may
/// take milliseconds to come back, but between four hosts at 2.5 Gb/s on two cores 256 KiB carries
/// 95 % of the rate as 1 MiB does. An urgent operation waits for at most that much on each stream:
/// 2 ms at 1 Gb/s. With 1 MiB the gradients of the first layers came so late that ResNet-50 trained
/// at 93 % instead of 96 % of its speed (docs/ladder.md). Bytes sent but not yet acknowledged do
/// not count, so the bandwidth-delay product has no part in it.
inline constexpr int kUnsentLowWater = 256 * 1024;

/// The same when several rails share a message: what waits on a slow one is late, so less does.
inline constexpr int kUnsentLowWaterOfRails = 128 * 1024;

/// With several rails the kernel must not break a connection during an outage: the rail recovers
/// when the link is back. The executor detects a dead peer itself, by silence on all rails.
inline constexpr Duration kRailOutageMax = std::chrono::hours(24);

/// Sets what a stream between ranks needs: cubic where the kernel has it
/// (bbr, some systems' default, keeps loopback and LAN links at a third of their rate), a short
/// queue of unsent bytes. After `dead_after` without an acknowledgement (or with a peer whose full
/// buffers nobody empties) the kernel breaks the connection with ETIMEDOUT; zero: its own, long,
/// limits. What the kernel does not know is left as it is.
void tune_stream(const Socket& socket, Duration dead_after, int unsent_low_water = kUnsentLowWater);

/// Lets the kernel ask the other end for a sign of life, and break the connection with ETIMEDOUT if
/// none comes for about `dead_after` (at least 3 s): for a connection over which long nothing goes.
void keep_alive(const Socket& socket, Duration dead_after);

/// Lets packets leave, and come, by this network interface alone, whatever the routes say. Error:
/// system (before Linux 5.7 it took the capability CAP_NET_RAW).
Status bind_to_interface(const Socket& socket, const std::string& interface);

/// Listens on exactly this address; never on all (0.0.0.0, ::). Port 0: any free one. Errors:
/// invalid_argument if the port is taken or the address not one of this host, system.
Result<Socket> listen_on(const SocketAddress& address);

struct Accepted {
  Socket socket;
  SocketAddress from;
};

/// The next connection that waits, or nothing if there is none. Error: system (out of descriptors).
Result<std::optional<Accepted>> accept_one(const Socket& listener);

/// Begins to connect, from the local address `source` if it is valid, and over `interface` alone if
/// it is not empty and that is permitted. The socket becomes writable
/// once the connection stands or has failed; the first send or receive then reports the failure.
/// Errors: disconnected; system (too few descriptors or too little memory, which may pass).
Result<Socket> start_connect(const SocketAddress& to, const SocketAddress& source = {},
                             const std::string& interface = "");

/// start_connect and wait until the connection stands. Errors: disconnected, timeout, system.
Result<Socket> connect_to(const SocketAddress& to, Deadline deadline,
                          const SocketAddress& source = {});

/// What came of one attempt to send or receive, which never waits.
struct Transfer {
  std::size_t bytes = 0;  ///< None: not now, or `ended`.
  bool ended = false;     ///< The other end has closed its half, or the connection broke.
  int cause = 0;          ///< Why it broke, as an error number; 0 if it was closed in order.
};

/// Some of `bytes`, which are not empty.
Transfer send_some(const Socket& socket, ConstBytes bytes);
Transfer receive_some(const Socket& socket, Bytes bytes);

/// This end's and the other end's address; none if not connected.
SocketAddress local_address(const Socket& socket);
SocketAddress peer_address(const Socket& socket);

/// Whether the socket got connected to itself, as can happen to one that keeps trying to connect to
/// an unused port of the ephemeral range on its own host (both ends then send SYN: the same end).
bool connected_to_itself(const Socket& socket);

/// Whether the other end has closed the connection, or it broke, with nothing left to read.
bool has_ended(const Socket& socket);
bool has_ended(int descriptor);

/// Waits for `events` (of poll(2)) on one socket; false when the deadline passes.
bool wait_for(const Socket& socket, short events, Deadline deadline);

}  // namespace gradwire
