#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/data/partition.h"
#include "gradwire/federated/computed_updates.h"
#include "gradwire/federated/simulated_rounds.h"
#include "gradwire/train/federated/federation_plan.h"
#include "gradwire/train/federated/federation_result.h"
#include "gradwire/train/federated/global_model.h"
#include "gradwire/train/federated/module_trainer.h"
#include "gradwire/train/federated/proximal.h"

namespace gradwire {

/// Those of the server's model, with the seed of this plan's updates.
GlobalModelOptions server_options(const FederationPlan& plan);
/// LocalPlan::seed.
std::uint64_t local_seed(const FederationPlan& plan);
/// The model as clients get it.
std::vector<float> sent_values(const FederationPlan& plan, const GlobalModel& model);

/// How many samples each client trains with.
std::vector<std::int64_t> training_samples(const HeldOut& clients);

/// The rounds of a plan in virtual time, whoever trains. Errors: throws Exception; aborted if 20
/// rounds in a row were abandoned. Not thread-safe.
class FederationRounds {
 public:
  /// `samples`: of each client's training data. `trainers`: as for ComputedUpdates. Without
  /// trainers the rounds have the same durations and bytes, but no client trains.
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
  federated::SimulatedRounds make_rounds(std::vector<std::int64_t> samples, bool trains);
  const federated::Round& next_round(const federated::UpdateQuantizer& quantizer, double proximal);

  FederationPlan plan_;
  GlobalModel model_;
  std::optional<federated::ComputedUpdates> updates_;
  federated::NoUpdates none_;     ///< In place of these,
  federated::UpdateShape shape_;  ///< which would have this shape.
  federated::SimulatedRounds rounds_;
  AdaptiveProximal proximal_;
  int abandoned_ = 0;  ///< In a row.
};

}  // namespace gradwire
