#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/data/data_set.h"
#include "gradwire/data/partition.h"
#include "gradwire/train/federated/federation_rounds.h"
#include "gradwire/train/federated/module_trainer.h"

namespace gradwire {

/// The end of a simulation.
struct FederationResult {
  std::vector<FederationRound> rounds;
  std::vector<federated::ClientRecord> clients;
  std::vector<federated::DeviceClass> classes;
  /// The final model on the samples that each client holds out; empty if none does.
  std::vector<Evaluated> by_client;
};

/// Simulates federated learning of a module on many clients in this process: rounds in virtual
/// time, of which only the updates that count are trained. Memory is by threads, not by clients.
/// The same plan gives the same bits on any number of threads.
///
///     gradwire::Federation federation(plan, data, clients, make_module);
///     federation.run([](const gradwire::FederationRound& round) { ... });
///
/// Errors: throws Exception; aborted if 20 rounds in a row were abandoned. Not thread-safe.
class Federation {
 public:
  /// `make` makes a module for each thread; the first one's values are the initial model. `data`
  /// has the samples of all clients; `clients` says whose they are.
  Federation(const FederationPlan& plan, DataSet data, HeldOut clients,
             const std::function<TrainableModule()>& make);
  ~Federation();

  /// The model is tested on these after each `every` rounds, and after the last.
  void test_on(DataSet data, std::int64_t every = 1);

  /// Simulates the next round, also one that is abandoned.
  FederationRound next();
  /// Simulates the rounds that are left of the plan, and evaluates the final model on all clients.
  FederationResult run(const std::function<void(const FederationRound&)>& on_round = nullptr);

  bool ended() const { return rounds_->ended(); }
  const GlobalModel& model() const { return rounds_->model(); }
  int largest_sum_bits() const { return rounds_->largest_sum_bits(); }

  /// Like those of FederationRounds.
  void save(const std::filesystem::path& path) { rounds_->save(path); }
  void load(const std::filesystem::path& path) { rounds_->load(path); }

 private:
  std::vector<Evaluated> evaluate_clients();

  DataSet data_;
  HeldOut clients_;
  std::unique_ptr<ModuleTrainer> evaluator_;
  std::unique_ptr<FederationRounds> rounds_;
  std::optional<DataSet> test_;
  std::vector<std::int64_t> test_samples_;
  std::int64_t test_every_ = 1;
  int threads_before_;
};

}  // namespace gradwire
