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
/// like connect_and_authenticate(), and with timeout if the name does not resolve: in some clusters
/// a host name resolves only once the host is up.
Result<RankZeroConnection> connect_once(const net::HostNetwork& network, const RankZero& to,
                                        net::Deadline deadline);

/// Returns true if the error may only mean that rank 0 has not started yet, or that this process is
/// out of file descriptors.
bool may_pass(const Error& error);

/// Exponential back-off between attempts, from 5 to 200 ms: there is no event for "rank 0 has
/// started".
class Backoff {
 public:
  /// Blocks, at most until the deadline.
  void pause(const net::HostNetwork& network, net::Deadline deadline);

 private:
  Duration pause_ = std::chrono::milliseconds(5);
};

}  // namespace gradwire::bootstrap
