#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire::report {

/// The result of federated learning, read from the JSON of `gradwire federate simulate --json`, or
/// from the result.json of `gradwire federate serve` (docs/federated.md). NaN: not measured.
struct FederatedRecord {
  static constexpr const char* kFileName = "result.json";

  struct Round {
    int number = 0;
    double accuracy = 0, loss = 0;
    double training_loss = 0;  ///< Mean over its clients.
    int asked = 0, ready = 0, used = 0, dropped = 0;
    bool is_abandoned = false;
    double up_bytes = 0, down_bytes = 0;  ///< All clients'.
    double seconds = 0;
  };

  /// A client's part in all rounds, and its cost.
  struct Client {
    int samples = 0;
    int eligible = 0, asked = 0, counted = 0;  ///< Rounds.
    double accuracy = 0;                       ///< The final model's, on held-out samples.
    double compute_seconds = 0, up_bytes = 0, down_bytes = 0;
  };

  /// A third of the clients, by the speed of their devices.
  struct DeviceClass {
    std::string devices;  ///< "slow", "middle" or "fast".
    int clients = 0;
    double sample_share = 0, counted_share = 0;  ///< In all samples; in all updates that counted.
    double accuracy = 0;
    double compute_seconds = 0, up_bytes = 0, down_bytes = 0;  ///< Means over its clients.
  };

  std::vector<Round> rounds;  ///< At least one, in order.
  double jain = 1;            ///< Jain's index of how often clients counted.
  double mean_accuracy = 0, worst_tenth_accuracy = 0;  ///< By client.
  std::vector<DeviceClass> classes;                    ///< Empty: unknown.
  std::vector<Client> clients;
};

/// Unknown keys are ignored. Errors are invalid_argument; the message names the key and what is
/// expected.
Result<FederatedRecord> parse_federated(std::string_view text);

}  // namespace gradwire::report
