#pragma once

#include <memory>

#include "gradwire/trace/trace_peers.h"
#include "gradwire/train/group.h"

namespace gradwire {

/// A TraceSession's peers over any c10d group that can send and receive bytes in host memory (Gloo,
/// MPI, gradwire): for traces of training on groups without a Communicator.
std::unique_ptr<TracePeers> group_trace_peers(ProcessGroup group);

}  // namespace gradwire
