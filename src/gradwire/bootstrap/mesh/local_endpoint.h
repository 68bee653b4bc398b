#pragma once

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/handshake/handshake_messages.h"
#include "gradwire/bootstrap/handshake/listener.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire::bootstrap {

/// Where this rank listens for the other ranks.
struct LocalEndpoint {
  SharedSecret shared;  ///< For the connections between the ranks.
  RankEndpoint endpoint;
  Listeners listeners;
};

/// Opens this rank's listeners: at job.addresses, or at one address of each interface of
/// job.interface, or by default of the interface on the route to `master`. With job.port, they are
/// behind the port that the ranks of the host share (bootstrap/mesh/shared_port.h). Fails with
/// invalid_argument, refused, timeout or system.
Result<LocalEndpoint> open_local_endpoint(const net::HostNetwork& network, const Job& job,
                                          SharedSecret shared, const net::SocketAddress& master,
                                          net::Deadline deadline);

}  // namespace gradwire::bootstrap
