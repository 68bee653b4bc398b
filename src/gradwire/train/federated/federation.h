#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/data/data_set.h"
#include "gradwire/federated/fairness.h"
#include "gradwire/federated/simulated_rounds.h"
#include "gradwire/train/federated/adaptive_proximal.h"
#include "gradwire/train/federated/global_model.h"
#include "gradwire/train/federated/local_training.h"

namespace gradwire {

/// Federated learning, as a simulation.
struct FederationPlan {
  std::int64_t rounds = 100;  ///< That commit.
  federated::RoundPolicy round{.ask = 10, .use = 10, .least = 1};
  LocalTrainingOptions local;
  GlobalModelOptions server;
  federated::Partial partial = federated::Partial::count;
  double proximal = 0;           ///< mu of FedProx.
  bool adapts_proximal = false;  ///< AdaptiveProximal, which begins with `proximal`.
  bool sends_bf16 = false;       ///< Clients get the model rounded to bfloat16.
  federated::DeviceModel devices;
  double server_rate = 0;  ///< Bytes per second, each direction; 0: unlimited.
  int threads = 0;  ///< That train; 0: one for each usable core. Results do not depend on it.
  std::uint64_t seed = 1;
};

/// What a round has done.
struct FederationRound {
  federated::RoundRecord record;
  federated::Metrics metrics;  ///< Sums over the clients that counted.
  double up_bytes = 0, down_bytes = 0;
  /// Of the model after the round, on test data if there are any.
  std::optional<LocalTraining::Evaluated> tested;
  double proximal = 0;
};

/// The end of a simulation.
struct FederationResult {
  std::vector<FederationRound> rounds;
  std::vector<federated::ClientRecord> clients;
  std::vector<federated::DeviceClass> classes;
  /// Of the final model on the samples that each client holds out; empty if none does.
  std::vector<LocalTraining::Evaluated> by_client;
};

/// Simulates federated learning of a module on many clients in this process: rounds in virtual
/// time, of which only the updates that count are trained. Memory is by threads, and not by clients.
/// The same plan gives the same bits on any number of threads.
///
///     gradwire::Federation federation(plan, data, clients, make_module);
///     federation.run([](const gradwire::FederationRound& round) { ... });
///
/// Errors: throws Exception; aborted if 20 rounds in a row were abandoned. Not thread-safe.
class Federation {
 public:
  /// `make` makes a module for each thread; the first one's values are the initial model. `data` has
  /// the samples of all clients.
  Federation(const FederationPlan& plan, DataSet data, std::vector<ClientSamples> clients,
             const std::function<TrainableModule()>& make);
  ~Federation();

  /// The model is tested on these after each `every` rounds, and after the last.
  void test_on(DataSet data, std::int64_t every = 1);

  /// Simulates the next round, also one that is abandoned.
  FederationRound next();
  /// Simulates the rounds that are left of the plan, and evaluates the final model on all clients.
  FederationResult run(const std::function<void(const FederationRound&)>& on_round = nullptr);

  bool ended() const { return model_->version() >= plan_.rounds; }
  const GlobalModel& model() const { return *model_; }
  /// Bits of an element of a sum, at most: with all samples that a cohort may have.
  int largest_sum_bits() const;

  /// A checkpoint, from which a federation of the same plan goes on with the same rounds.
  void save(const std::filesystem::path& path);
  void load(const std::filesystem::path& path);

 private:
  LocalTraining::Evaluated test();
  std::vector<LocalTraining::Evaluated> evaluate_clients();
  std::vector<float> sent_model() const;
  federated::SimulatedRounds make_rounds() const;

  FederationPlan plan_;
  DataSet data_;
  std::vector<ClientSamples> clients_;
  std::unique_ptr<LocalTraining> evaluator_;
  std::unique_ptr<GlobalModel> model_;
  std::unique_ptr<federated::ComputedUpdates> updates_;
  std::optional<federated::SimulatedRounds> rounds_;
  std::optional<DataSet> test_;
  std::vector<std::int64_t> test_samples_;
  std::int64_t test_every_ = 1;
  AdaptiveProximal proximal_;
  int abandoned_ = 0;  ///< In a row.
  int threads_before_;
};

}  // namespace gradwire
