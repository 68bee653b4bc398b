#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/recipe/federated_config.h"
#include "gradwire/train/federated/federation.h"

namespace gradwire::recipe {

/// The configured model, with its first values. Throws Exception(invalid_argument) if only a file
/// with values is configured.
TrainableModule make_module(const FederatedConfig& config);

/// `threads`: FederationPlan::threads.
FederationPlan plan_of(const FederatedConfig& config, int threads = 0);

/// Simulates what a configuration describes, on `threads` threads (0: one for each usable core),
/// with the model's test data. Throws Exception(invalid_argument) for data that cannot be divided
/// as configured.
std::unique_ptr<Federation> make_federation(const FederatedConfig& config, int threads);

/// The same rounds without training: what clients and the server do, and how long it takes. Throws
/// as make_federation(), but clients may be more than samples: samples_of_clients().
FederationResult simulate_protocol(const FederatedConfig& config);

/// The bits of an element of an update, and of a sum, for users.
std::string widths_text(const FederatedConfig& config, const Federation& federation);

/// The neighbours and threshold of secure aggregation, as a further line; empty without it.
std::string secure_text(const FederatedConfig& config);

/// A round, as JSON and as a line for users.
nlohmann::ordered_json round_json(const FederationRound& round);
std::string round_text(const FederationRound& round);

/// Accuracy of a round: on test data; without these, that of the model before the round on the
/// held-out samples of its clients. NaN if it was not measured.
double accuracy_of(const FederationRound& round);

/// The result by rounds: JSON of `gradwire federate simulate`, and a text for users.
nlohmann::ordered_json result_json(const FederationResult& result);
std::string result_text(const FederationResult& result);

/// Rounds and bytes until an accuracy was reached.
struct Target {
  double rounds = 0;  ///< Interpolated between the rounds that were evaluated; NaN: not reached.
  double up_bytes = 0, down_bytes = 0;  ///< All clients'.
};
Target reached(const std::vector<FederationRound>& rounds, double accuracy);

}  // namespace gradwire::recipe
