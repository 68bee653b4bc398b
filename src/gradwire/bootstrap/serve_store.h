#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store_server.h"
#include "gradwire/net/deadline.h"

namespace gradwire::bootstrap {

/// Serves the job's store, on rank 0, for clients that know the job's secret. It listens on the
/// first of the master's addresses that is local, and on no other; if the master's port is the
/// job's port, behind that port, which the ranks of the host share. `starts_job`:
/// StoreServer::Options::starts_job.
///
/// Fails with:
///   invalid_argument: unknown host name, no local address among its addresses, or port in use
///   timeout: of the name resolver, or of the ranks that share the port
///   refused: a process of another user has the shared port's name
///   system
Result<std::unique_ptr<StoreServer>> serve_store(const net::HostNetwork& network, const Job& job,
                                                 std::optional<std::string> starts_job,
                                                 net::Deadline deadline);

}  // namespace gradwire::bootstrap
