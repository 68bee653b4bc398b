#pragma once

#include <memory>

#include "gradwire/comm/communicator.h"
#include "gradwire/host/group.h"
#include "gradwire/servers/messages.h"

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

/// Connects the members of this worker's group, in the order of their ranks among `workers`. The
/// others go on if it fails. Collective over `workers`. Throws as Communicator::connect().
std::shared_ptr<Communicator> connect_members(const ProcessGroup& workers, int members);

}  // namespace gradwire
