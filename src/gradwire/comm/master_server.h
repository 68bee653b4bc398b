#pragma once

#include <memory>

#include "gradwire/base/error.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/rendezvous_server.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/door.h"

namespace gradwire {

/// Where those who look for `purpose` (net/handshake.h) of rank 0 come in: at the first of the
/// master's addresses that is this host's, and on that alone; if the master's port is the job's,
/// behind that, which the ranks of the host share. Errors: as serve_at_master.
Result<std::unique_ptr<Door>> open_master_door(const Job& job, const char* purpose,
                                               Deadline deadline);

/// The store of a job, on rank 0: at the first of the master's addresses that is this host's, and
/// if the master's port is the job's, behind that, which the ranks of the host share.
///
/// Errors: invalid_argument (no such name, none of its addresses is this host's, or another program
/// has the port), timeout (of the name's resolver, or of those that share the port), refused
/// (another user's process has the shared port's name), system.
Result<std::unique_ptr<RendezvousServer>> serve_at_master(const Job& job, Deadline deadline);

}  // namespace gradwire
