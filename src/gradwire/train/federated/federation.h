#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/data/data_set.h"
#include "gradwire/data/partition.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/federated/federation_plan.h"
#include "gradwire/train/federated/federation_result.h"
#include "gradwire/train/federated/trainable_module.h"

namespace gradwire {

/// Simulates federated learning of a module on many clients in this process: rounds in virtual
/// time, of which only the updates that count are trained. Memory is by threads, not by clients.
/// The same plan gives the same bits on any number of threads.
///
///     gradwire::Federation federation(plan, data, clients, make_module);
///     federation.run([](const gradwire::FederationRound& round) { ... });
///     gradwire::save_safetensors("model.safetensors", federation.tensors());
///
/// Errors: throws Exception; aborted if 20 rounds in a row were abandoned. Not thread-safe.
class Federation {
 public:
  /// `make` makes a module for each thread; the first one's values are the initial model. `data`
  /// has the samples of all clients; `clients` says whose they are (partition(), hold_out()). As
  /// long as this exists, libtorch's operations use one thread on the caller's.
  Federation(const FederationPlan& plan, DataSet data, HeldOut clients,
             const std::function<TrainableModule()>& make);
  ~Federation();
  Federation(Federation&&) noexcept;
  Federation& operator=(Federation&&) = delete;

  /// The model is tested on these after each `every` rounds, and after the last.
  void test_on(DataSet data, std::int64_t every = 1);

  /// Simulates the next round, also one that is abandoned.
  FederationRound next();
  /// Simulates the rounds that are left of the plan, and evaluates the final model on all clients.
  FederationResult run(const std::function<void(const FederationRound&)>& on_round = nullptr);
  /// All rounds of the plan have committed.
  bool ended() const;

  /// The model: the module's trainable parameters, then its floating buffers, by name. Views, whose
  /// values change with the next round.
  const std::vector<NamedTensor>& tensors() const;

  /// Bits of an element of a sum, at most: with all samples that a cohort may have.
  int largest_sum_bits() const;

  /// A checkpoint, from which a federation of the same plan goes on with the same rounds. load()
  /// throws Exception(invalid_argument) if it is of another configuration; `rounds` and the place
  /// of the data, `data.path`, may differ.
  void save(const std::filesystem::path& path);
  void load(const std::filesystem::path& path);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire
