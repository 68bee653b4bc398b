#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "gradwire/plan/simulate/federated_rounds.h"
#include "gradwire/plan/simulate/server_training.h"

namespace gradwire {

struct SimulateOptions;

/// Options for training without all-reduces, unparsed.
struct RoundOptions {
  int servers = 0;  ///< 0: no servers.
  bool asynchronous = false;
  int clients = 0;  ///< 0: not federated.
  int asked = 300, used = 256;
  double window_s = 60;
  double spread = 0.3;
  double dropout = 0;
  std::string up = "5Mb/s", down = "20Mb/s";
  int steps = 100;
  std::uint64_t seed = 1;
};

void declare(CLI::App& app, RoundOptions& options);

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

}  // namespace gradwire
