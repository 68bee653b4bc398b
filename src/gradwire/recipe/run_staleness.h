#pragma once

#include "gradwire/report/training_summary.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/servers/server_report.h"

namespace gradwire::recipe {

/// The rules of a run's servers and workers.
struct ServedRules {
  servers::ServerPolicy policy;
  int members = 1;     ///< Workers of a group.
  int pull_every = 1;  ///< Steps from one pull to the next.
};

/// Summarizes the staleness of a run's gradients: by worker and by unit, and beside it what the
/// planner predicts from the workers' paces. With asynchronous units beside synchronous ones it is
/// theirs alone, and there is neither a prediction nor a staleness by worker. No prediction either
/// with common steps, which have no staleness, and if the pace of a worker is not known.
report::StalenessSummary summarize_staleness(const servers::ServerReport& report,
                                             const ServedRules& rules);

}  // namespace gradwire::recipe
