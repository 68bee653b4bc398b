#pragma once

#include <memory>
#include <optional>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/doctor/host_report.h"
#include "gradwire/net/host_network.h"

namespace gradwire::cli {

/// Runs the doctor as the ranks of a job of another launcher. Every rank calls it and reports
/// through a store that rank 0 serves at the job's master address and port. Returns the examination
/// on rank 0, nullopt elsewhere. Fails like JobStore::open(), or with invalid_argument if the
/// launcher runs its own store there.
Result<std::optional<ClusterReport>> examine_in_job(std::shared_ptr<const net::HostNetwork> network,
                                                    const bootstrap::Job& job);

}  // namespace gradwire::cli
