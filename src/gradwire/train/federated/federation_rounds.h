#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/federated/computed_updates.h"
#include "gradwire/federated/fairness.h"
#include "gradwire/federated/simulated_rounds.h"
#include "gradwire/train/federated/global_model.h"
#include "gradwire/train/federated/module_trainer.h"
#include "gradwire/train/federated/proximal.h"

namespace gradwire {

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
  /// JSON of the configuration that this was made of, for checkpoints.
  std::string configuration = "{}";
};

/// Those of the server's model, with the seed of this plan's updates.
GlobalModelOptions server_options(const FederationPlan& plan);
/// LocalPlan::seed.
std::uint64_t local_seed(const FederationPlan& plan);
/// The model as clients get it.
std::vector<float> sent_values(const FederationPlan& plan, const GlobalModel& model);

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

/// The rounds of a plan in virtual time, whoever trains. Errors: throws Exception; aborted if 20
/// rounds in a row were abandoned. Not thread-safe.
class FederationRounds {
 public:
  /// `samples`: of each client's training data. `trainers`: as for ComputedUpdates.
  FederationRounds(const FederationPlan& plan, const FederatedTensors& initial,
                   std::vector<std::int64_t> samples,
                   std::vector<std::unique_ptr<federated::ClientTrainer>> trainers);

  /// Simulates the next round, also one that is abandoned.
  FederationRound next();
  bool ended() const { return model_.version() >= plan_.rounds; }

  const GlobalModel& model() const { return model_; }
  std::span<const federated::ClientRecord> records() const { return rounds_.records(); }
  std::vector<federated::DeviceClass> classes() const;
  /// Bits of an element of a sum, at most: with all samples that a cohort may have.
  int largest_sum_bits() const;

  /// A checkpoint, from which a federation of the same plan goes on with the same rounds. load()
  /// throws Exception(invalid_argument) if it is of another configuration; `rounds` and the place
  /// of the data, `data.path`, may differ.
  void save(const std::filesystem::path& path);
  void load(const std::filesystem::path& path);

 private:
  federated::SimulatedRounds make_rounds(std::vector<std::int64_t> samples) const;

  FederationPlan plan_;
  GlobalModel model_;
  federated::ComputedUpdates updates_;
  federated::SimulatedRounds rounds_;
  AdaptiveProximal proximal_;
  int abandoned_ = 0;  ///< In a row.
};

}  // namespace gradwire
