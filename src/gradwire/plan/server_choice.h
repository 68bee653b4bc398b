#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/plan/predict/step_time.h"
#include "gradwire/servers/server_policy.h"

namespace gradwire::plan {

/// A plan with some number of parameter servers, or with an all-reduce in their place.
struct ServerChoice {
  PlanInput input;
  StepTime time;  ///< A synchronous step.
  /// Simulated for the mode, workers equally fast; 0 in mode sync and for an all-reduce.
  double staleness = 0;
  std::int64_t staleness_p99 = 0;

  double samples_per_second_of_a_machine() const {
    return time.samples_per_second / input.strategy.machines();
  }
};

struct ServerChoices {
  servers::ServerPolicy policy;
  /// The best all-reduce; 1, 2, 4, ... servers up to the number of nodes on nodes of their own; one
  /// beside each worker.
  std::vector<ServerChoice> all;
  /// Which of these has the most samples per second and machine. One that is at most 1 % better
  /// than an all-reduce, or than servers beside the workers, is not preferred to it.
  std::size_t best = 0;
};

/// Plans `input` with these numbers of servers. The mode of `policy` decides the staleness. Throws
/// Exception(invalid_argument) for a single node, more than 1024 in the modes ssp and async, and
/// what check_strategy() refuses beside servers.
ServerChoices choose_servers(const PlanInput& input, const servers::ServerPolicy& policy);

/// A table, the choice, and its reason.
std::string to_text(const ServerChoices& choices);
std::string to_json(const ServerChoices& choices);

}  // namespace gradwire::plan
