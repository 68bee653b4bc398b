#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "gradwire/base/units.h"
#include "gradwire/gradient/defaults.h"
#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/plan/simulate/failures.h"
#include "gradwire/plan/simulate/step_simulation.h"

namespace gradwire {

/// The command line of `gradwire plan simulate`, as it is written.
struct SimulateOptions {
  // Hosts and links.
  std::string topology;  ///< A file of `gradwire probe`; otherwise:
  int nodes = 4, per_node = 1;
  std::string network = "10gbe";
  std::string latency;  ///< In place of the network's.
  double slow_host = 1, slow_port = 1;
  int rack = 0;
  double oversubscription = 1;

  // An operation, or a step.
  std::string collective, bytes = "64M", algorithm = "auto";
  std::string profile = "resnet50", codec = "none", overlap = "full";
  double compute_ms = 0, update_ms = 0;
  int accumulate = 1, local_steps = 1, fragments = 1, overlap_steps = 0;
  std::string bucket = format_bytes(kBucketBytes), first_bucket = format_bytes(kFirstBucketBytes),
              last_bucket = format_bytes(kLastBucketBytes), partition = "0";
  std::string piece = "4M", codec_speeds;

  // What stops jobs.
  double failures_per_day = 0, checkpoint_s = 30, restart_s = 120;

  std::string json;
};

void declare(CLI::App& app, SimulateOptions& options);

/// The hosts, if not measured. Throws Exception(invalid_argument).
Fabric fabric_of(const SimulateOptions& options);

/// How long operations take there, and how many ranks there are.
struct SimulatedLinks {
  OperationTimes times;
  int ranks = 1;
  double codec_slowdown = 1;
};
/// Throws Exception: invalid_argument; system, for a file that cannot be read.
SimulatedLinks links_of(const SimulateOptions& options);

/// The profile of that name or file; or a model of gradwire plan, as a profile. Throws
/// Exception(invalid_argument).
LayerProfile profile_of(const SimulateOptions& options);

/// A step of that profile. Throws Exception(invalid_argument).
SimulatedStep simulate(const SimulateOptions& options, const LayerProfile& profile,
                       const SimulatedLinks& links);

StepModel step_model_of(const SimulateOptions& options, const LayerProfile& profile);
StepPlanOptions plan_options_of(const SimulateOptions& options);
ExchangeModel exchange_of(const SimulateOptions& options, const SimulatedLinks& links);

}  // namespace gradwire
