#pragma once

#include "gradwire/cli/probe/measure.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/rendezvous.h"

namespace gradwire {

/// This rank of a connected job, as one that measures. If the job has a port, the first rank of
/// each host takes its datagrams there, as firewalls may let nothing else in.
Prober prober_of(const Job& job, const Mesh& mesh);

}  // namespace gradwire
