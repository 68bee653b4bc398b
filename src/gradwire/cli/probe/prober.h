#pragma once

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/rendezvous.h"
#include "gradwire/cli/probe/measure.h"

namespace gradwire {

/// Returns this rank of a connected job as a prober. If the job has a port, the first rank of each
/// host receives datagrams there, as firewalls may block other ports.
Prober prober_of(const Job& job, const Mesh& mesh);

}  // namespace gradwire
