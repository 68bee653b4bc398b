#pragma once

#include <memory>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/listener.h"
#include "gradwire/bootstrap/rendezvous_server.h"
#include "gradwire/net/deadline.h"

namespace gradwire::bootstrap {

/// Opens the listener for clients of `purpose` (bootstrap/handshake.h) on rank 0. It listens on the
/// first of the master's addresses that is local, and on no other. If the master's port is the
/// job's port, the listener is behind that port, which the ranks of the host share. Fails like
/// serve_at_master().
Result<std::unique_ptr<Listener>> open_master_listener(const net::HostNetwork& network,
                                                       const Job& job, const char* purpose,
                                                       net::Deadline deadline);

/// Starts the store of a job on rank 0. It listens on the first of the master's addresses that is
/// local; if the master's port is the job's port, behind that port, which the ranks of the host
/// share.
///
/// Fails with:
///   invalid_argument: unknown host name, no local address among its addresses, or port in use
///   timeout: of the name resolver, or of the ranks that share the port
///   refused: a process of another user has the shared port's name
///   system
Result<std::unique_ptr<RendezvousServer>> serve_at_master(const net::HostNetwork& network,
                                                          const Job& job, net::Deadline deadline);

}  // namespace gradwire::bootstrap
