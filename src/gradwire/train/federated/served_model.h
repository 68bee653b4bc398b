#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/federated/remote/client_plan.h"
#include "gradwire/federated/remote/coordinator.h"
#include "gradwire/federated/remote/model_bytes.h"
#include "gradwire/train/federated/federation_rounds.h"

namespace gradwire {

/// The model of a FederatedServer: what clients are to do, the model's bytes for each of them, the
/// outer step, and checkpoints. It runs no code of the model. A version is named by the round that
/// made it, so that no name is used twice, also after a crash.
class ServedModel final : public federated::ServerModel {
 public:
  struct Options {
    std::filesystem::path folder;       ///< For checkpoint and model.
    std::int64_t checkpoint_every = 1;  ///< Rounds.
    std::string optimizer = "{}";       ///< ClientPlan::optimizer.
    std::string configuration = "{}";   ///< ModelDescription::configuration.
    /// Called for each round, before it is in a checkpoint.
    std::function<void(const FederationRound&)> on_round;
    /// Called after the last round is in a checkpoint, before clients hear that it was the last.
    std::function<void()> on_complete;
  };
  static constexpr const char* kCheckpoint = "checkpoint.safetensors";
  static constexpr const char* kModel = "model.safetensors";

  /// The local optimizer of `plan` is not used. Numbers of rounds that have begun in the folder are
  /// not used again. The first round that begins writes a checkpoint, if there is none.
  ServedModel(const FederationPlan& plan, const FederatedTensors& initial, Options options);

  /// Goes on from the folder's checkpoint. Returns the last round of which it knows; later ones are
  /// lost, and their numbers are not used again. Throws as load_checkpoint().
  std::int64_t resume();

  /// For Coordinator::Options: what an earlier run has used and counted.
  std::int64_t first_round() const { return begun_ + 1; }
  const federated::ClientLedger& ledger() const { return ledger_; }

  const GlobalModel& model() const { return model_; }
  /// Writes the folder's model file.
  void write_model() const;

  std::string description() override;
  Work begin(std::int64_t round) override;
  Demand demand(std::int64_t samples) override;
  Bytes bytes_for(std::int64_t version) override;
  void on_ended(const federated::EndedRound& round) override;
  bool is_complete() override { return model_.version() >= plan_.rounds; }
  void on_stop() override;

 private:
  struct Kept {
    std::int64_t version = 0;
    std::vector<float> values;
  };

  federated::ModelType type() const {
    return plan_.sends_bf16 ? federated::ModelType::bf16 : federated::ModelType::float32;
  }
  federated::ClientPlan client_plan() const;
  void keep(std::int64_t version);
  void note_begun(std::int64_t round);
  void save();

  FederationPlan plan_;
  Options options_;
  GlobalModel model_;
  AdaptiveProximal proximal_;
  federated::ClientLedger ledger_;
  std::int64_t begun_ = 0;    ///< The last round,
  std::int64_t unsaved_ = 0;  ///< and those that ended since the last checkpoint.
  std::optional<federated::UpdateQuantizer> quantizer_;  ///< The round's.
  std::deque<Kept> kept_;  ///< Values as they were sent, the newest first.
  federated::Blob whole_;
  std::map<std::int64_t, federated::Blob> differences_;  ///< By their base version.
  federated::Digest digest_{};  ///< digest_of_model() of the newest values.
};

}  // namespace gradwire
