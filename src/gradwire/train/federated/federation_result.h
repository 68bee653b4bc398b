#pragma once

#include <optional>
#include <vector>

#include "gradwire/federated/fairness.h"
#include "gradwire/federated/metrics.h"
#include "gradwire/federated/round_record.h"
#include "gradwire/train/federated/trainable_module.h"

namespace gradwire {

/// The outcome of a round.
struct FederationRound {
  federated::RoundRecord record;
  federated::Metrics metrics;  ///< Sums over the clients that counted.
  double up_bytes = 0, down_bytes = 0;
  /// The model after the round, on test data if there are any.
  std::optional<Evaluated> tested;
  bool has_test_data = false;  ///< Whether tested or not.
  double proximal = 0;
};

/// The end of a simulation.
struct FederationResult {
  std::vector<FederationRound> rounds;
  std::vector<federated::ClientRecord> clients;
  std::vector<federated::DeviceClass> classes;
  /// The final model on the samples that each client holds out; empty if none does.
  std::vector<Evaluated> by_client;
};

}  // namespace gradwire
