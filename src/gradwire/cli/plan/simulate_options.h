#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include "gradwire/base/units.h"
#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/plan/simulate/failures.h"
#include "gradwire/plan/simulate/server_training.h"
#include "gradwire/plan/simulate/step_simulation.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/step/bucket_plan.h"

namespace gradwire::cli {

/// The command line of `gradwire plan simulate`, unparsed.
struct SimulateOptions {
  // Hosts and links.
  std::string topology;  ///< A file of `gradwire probe`; if empty, the following.
  int nodes = 4, per_node = 1;
  std::string network = "10gbe";
  std::string latency;  ///< Empty: the network's.
  double slow_host = 1, slow_port = 1;
  int rack = 0;
  double oversubscription = 1;

  // An operation, or a step.
  std::string collective, bytes = "64M", algorithm = "auto";
  std::string profile = "resnet50", codec = "none", overlap = "full";
  double compute_ms = 0, update_ms = 0;
  int accumulate = 1, local_steps = 1, fragments = 1, overlap_steps = 0;
  std::string bucket = format_bytes(step::kBucketBytes),
              first_bucket = format_bytes(step::kFirstBucketBytes),
              last_bucket = format_bytes(step::kLastBucketBytes), partition = "0";
  std::string piece = "4M", codec_speeds;

  // Failures and checkpoints.
  double failures_per_day = 0, checkpoint_s = 30, restart_s = 120;

  std::string json;
};

void declare(CLI::App& app, SimulateOptions& options);

/// Returns the modelled hosts and links. Throws Exception(invalid_argument).
plan::Fabric fabric_of(const SimulateOptions& options);

/// Times of operations, and the number of ranks.
struct SimulatedLinks {
  plan::OperationTimes times;
  int ranks = 1;
  double codec_slowdown = 1;
};
/// Returns the links of the options, modelled or measured. Throws Exception(invalid_argument), or
/// Exception(system) if a file cannot be read.
SimulatedLinks links_of(const SimulateOptions& options);

/// Returns the profile of that name or file, or a model of gradwire plan as a profile. Throws
/// Exception(invalid_argument).
workload::LayerProfile profile_of(const SimulateOptions& options);

/// Simulates a step of the profile. Throws Exception(invalid_argument).
plan::SimulatedStep simulate(const SimulateOptions& options, const workload::LayerProfile& profile,
                             const SimulatedLinks& links);

plan::StepModel step_model_of(const SimulateOptions& options,
                              const workload::LayerProfile& profile);
step::StepPlanOptions plan_options_of(const SimulateOptions& options);
plan::ExchangeModel exchange_of(const SimulateOptions& options, const SimulatedLinks& links);

struct SimulateOptions;

/// Options for training without all-reduces, unparsed.
struct RoundOptions {
  int servers = 0;  ///< 0: no servers.
  std::string mode = "sync";
  bool asynchronous = false;  ///< The same as mode async.
  double use = 1;
  servers::Groups groups;  ///< Workers that are synchronous to each other.
  int pull_every = 1;
  std::string pull_codec = "none";
  int clients = 0;  ///< 0: not federated.
  int asked = 300, used = 256;
  double window_s = 60;
  std::string spread = "0.3";
  std::vector<std::string> slow;
  double dropout = 0;
  std::string up = "5Mb/s", down = "20Mb/s";
  int steps = 100;
  std::uint64_t seed = 1;
};

void declare(CLI::App& app, RoundOptions& options);

/// With servers, refuses the options of a step that their simulation does not model, by name.
/// `app` has parsed the command line.
void check_modelled(const CLI::App& app, const RoundOptions& options);

/// A result as JSON and as a sentence.
struct RoundResult {
  nlohmann::ordered_json json;
  std::string text;
};

/// Simulates parameter servers: the ranks of the fabric are the workers; the servers are additional
/// hosts.
RoundResult simulate_server_rounds(const SimulateOptions& step, const RoundOptions& options);
/// Simulates federated learning of the profile's model, whose local epochs take --compute-ms.
RoundResult simulate_federated_rounds(const SimulateOptions& step, const RoundOptions& options);

}  // namespace gradwire::cli
