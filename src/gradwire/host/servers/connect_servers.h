#pragma once

#include <memory>

#include "gradwire/comm/communicator.h"
#include "gradwire/host/group.h"
#include "gradwire/servers/messages.h"
#include "gradwire/servers/server_policy.h"

namespace gradwire {

/// This rank among workers and servers.
struct ServersPlace {
  servers::Placement placement;
  std::shared_ptr<Communicator> pairs;  ///< Its failure domain is a pair.
  int server = -1;                      ///< Its number; -1 on a rank that only works.

  bool works() const { return pairs->rank() < placement.workers; }
};

/// Connects all workers and servers with each other. If `gradwire run --servers` has started this
/// process, servers have ranks of their own, and `group` has the ranks of this one's role.
/// Otherwise the first `beside` ranks of the group serve beside their work; 0: all. Collective.
/// Throws Exception as Communicator::connect(), and invalid_argument.
ServersPlace connect_servers(const ProcessGroup& group, int beside);

/// If no worker waits for another one, tells the launcher that the job goes on without those that
/// have no server beside them or beside one of their group. Returns true if it has: then take it
/// back when this worker leaves (bootstrap::note_optional). Returns false if `workers` are not the
/// whole job. With servers that are `mirrored` it goes on without any of them, too.
bool note_optional_workers(const servers::Placement& placement, const servers::ServerPolicy& policy,
                           const ProcessGroup& workers, bool mirrored = false);

/// A rank that only serves ends: takes leave of the workers, and of `group`, the other servers.
void leave_as_server(Communicator& pairs, const ProcessGroup& group);

/// Connects the members of this worker's group, in the order of their ranks among `workers`. The
/// others go on if it fails. Collective over `workers`. Throws as Communicator::connect().
std::shared_ptr<Communicator> connect_members(const ProcessGroup& workers, int members);

}  // namespace gradwire
