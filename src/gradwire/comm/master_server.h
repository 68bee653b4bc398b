#pragma once

#include <memory>

#include "gradwire/base/error.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/rendezvous_server.h"
#include "gradwire/net/deadline.h"

namespace gradwire {

/// The store of a job, on rank 0: at the first of the master's addresses that is this host's, and
/// if the master's port is the job's, behind that, which the ranks of the host share.
///
/// Errors: invalid_argument (no such name, none of its addresses is this host's, or another program
/// has the port), timeout (of the name's resolver, or of those that share the port), refused
/// (another user's process has the shared port's name), system.
Result<std::unique_ptr<RendezvousServer>> serve_at_master(const Job& job, Deadline deadline);

}  // namespace gradwire
