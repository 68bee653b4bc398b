#pragma once

#include <cstdint>
#include <string>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/bootstrap/handshake.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// How a rank connects to a server on rank 0, which may not have started yet: the rendezvous store
/// and the job's store.
struct RankZero {
  std::string host;  ///< Name or address.
  std::uint16_t port = 0;
  SharedSecret shared;
  Claims claims;
};

/// A server on rank 0 responds immediately; a longer delay means trouble on its host or the link.
inline constexpr Duration kRankZeroPatience = std::chrono::seconds(10);

struct RankZeroConnection {
  AuthenticatedSocket connection;
  net::SocketAddress server;
};

/// Makes one attempt: tries the addresses of the host in order, each for at most 5 s (longer than a
/// server's timeout for unauthenticated peers, behind which this client may queue). Blocks. Fails
/// like connect_and_authenticate(), and as net::resolve() if the name does not resolve.
Result<RankZeroConnection> connect_once(const net::HostNetwork& network, const RankZero& to,
                                        net::Deadline deadline);

/// Attempts to connect, until the deadline: there is no event for "rank 0 has started". Pauses grow
/// from 5 to 200 ms. After 8 s it logs one warning, which
/// names rank 0's address and the last error.
class Attempts {
 public:
  Attempts(const net::HostNetwork& network, const RankZero& to, net::Deadline deadline)
      : network_(network), to_(to), deadline_(deadline), start_(deadline.clock().now()) {}

  /// Pauses after a failed attempt, at most until the deadline. Fails with `error` if it cannot
  /// pass: rank 0 may not have started yet, or this process may be out of file descriptors. A name
  /// that does not exist may appear within 10 s: in some clusters it does when the host is up. A
  /// refusal may be another job's, which ends within 2 s or keeps this job's rank 0 from listening:
  /// then rank 0 says so first.
  Status after(const Error& error);

  /// Returns the seconds from the first attempt to the deadline.
  double seconds() const;

 private:
  bool may_pass(const Error& error) const;
  Duration waited() const { return deadline_.clock().now() - start_; }

  const net::HostNetwork& network_;
  const RankZero& to_;
  net::Deadline deadline_;
  Time start_;
  Duration pause_ = std::chrono::milliseconds(5);
  bool warned_ = false;
};

}  // namespace gradwire::bootstrap
