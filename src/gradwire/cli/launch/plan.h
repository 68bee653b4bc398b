#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/placement.h"

namespace gradwire {

/// One rank and everything needed to start it.
struct RankPlan {
  Placement place;
  HostEntry host;
  bool remote = false;
  VariableList variables;  ///< Set by the launcher, on top of the host's own environment.
};

/// Everything about a job that is decided before its first process starts.
struct JobPlan {
  std::string run;  ///< Random; marks the processes (kProcessMark).
  std::vector<RankPlan> ranks;
};

/// Decides where ranks run and what is in their environment. Throws Exception(invalid_argument,
/// system).
JobPlan plan_job(const LaunchOptions& options);

}  // namespace gradwire
