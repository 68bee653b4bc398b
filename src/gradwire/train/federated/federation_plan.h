#pragma once

#include <cstdint>
#include <string>

#include "gradwire/federated/device_model.h"
#include "gradwire/federated/partial.h"
#include "gradwire/federated/quantizer_options.h"
#include "gradwire/federated/round_policy.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

/// The work of a round, the same for all clients. The number of steps follows from each client's
/// samples.
struct LocalPlan {
  std::int64_t epochs = 1;
  std::int64_t batch_size = 0;  ///< The last batch of an epoch may be smaller. 0: all samples.
  OptimizerFactory optimizer;   ///< Each client makes one in each round. Required.
  // A FederationPlan decides these two itself.
  double proximal = 0;     ///< mu of add_proximal_gradient(); 0: none.
  std::uint64_t seed = 0;  ///< Draws the order of samples.
};

/// The server's part in a round.
struct GlobalModelOptions {
  /// The outer optimizer: it steps on the gradient -(mean update) (Reddi et al., "Adaptive
  /// Federated Optimization", ICLR 2021, algorithm 1). With SGD of rate 1 the model becomes the
  /// mean of the clients' models (FedAvg): that is the optimizer if none is given.
  OptimizerFactory optimizer;
  federated::QuantizerOptions update;
  // A FederationPlan decides these two itself.
  /// Updates are divided by their steps, and the mean multiplied by the mean number of steps
  /// (FedNova: Wang et al., NeurIPS 2020).
  bool normalizes = false;
  std::uint64_t seed = 0;  ///< Draws signs, masks and rounding.
};

/// Federated learning, as a simulation.
struct FederationPlan {
  std::int64_t rounds = 100;  ///< So many commit.
  federated::RoundPolicy round{.ask = 10, .use = 10, .least = 1};
  LocalPlan local;
  GlobalModelOptions server;
  federated::Partial partial = federated::Partial::count;
  double proximal = 0;           ///< mu of FedProx.
  bool adapts_proximal = false;  ///< AdaptiveProximal, which begins with `proximal`.
  bool sends_bf16 = false;       ///< Clients get the model rounded to bfloat16.
  federated::DeviceModel devices;
  double server_rate = 0;  ///< Bytes per second, each direction; 0: unlimited.
  int threads = 0;  ///< They train; 0: one for each usable core. Results do not depend on it.
  std::uint64_t seed = 1;
  /// JSON of the configuration that this was made of, for checkpoints: one of another configuration
  /// is not gone on from.
  std::string configuration = "{}";
};

}  // namespace gradwire
