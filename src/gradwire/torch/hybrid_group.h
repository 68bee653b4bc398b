#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/torch/host_grid.h"

namespace gradwire {

/// Backends for the ranks of this host, numbered by their places. Two, because ranks start
/// reductions and gathers in different orders.
struct InsideBackends {
  c10::intrusive_ptr<c10d::Backend> reductions;
  c10::intrusive_ptr<c10d::Backend> gathers;
};

/// Finds out which ranks of a gradwire group share a host. Collective. Throws
/// Exception(unsupported) for a group of another backend, or as host_grid() does.
HostGrid host_grid_of(c10d::ProcessGroup& group);

/// Returns a group of the same ranks as `group`, a gradwire group, whose reductions and gathers of
/// large tensors run in two levels: the ranks of a host reduce with `inside`, each sends its part
/// between hosts, and the host gathers the parts. It shares the connections of `group`. Without
/// `inside`, gradwire's own is between the ranks of a host too. If each host has one rank, it works
/// as `group` does. DataParallel, Zero and LocalSgd take such a group, with codecs between hosts.
/// Collective. Throws Exception(unsupported) for a group of another backend.
c10::intrusive_ptr<c10d::ProcessGroup> hybrid_group(c10d::ProcessGroup& group, const HostGrid& grid,
                                                    const InsideBackends& inside = {});

}  // namespace gradwire
