#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/host/named_tensor.h"
#include "gradwire/host/training_host.h"
#include "gradwire/servers/served_exchange.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/servers/torch_shards.h"
#include "gradwire/train/zero/shards.h"
#include "gradwire/train/zero/unit_plan.h"

namespace gradwire {

/// The contents of a checkpoint of a run with servers.
struct ServedTensors {
  std::vector<NamedTensor> parameters, frozen;  ///< Trained, and not.
  UnitPlan plan;                                ///< The units of `parameters`.
  OptimizerFactory optimizer;
  servers::Placement placement;
  bool has_common_steps = true;  ///< ServerPolicy::has_common_steps().
};

/// A run with servers as pieces of a checkpoint. Each worker has all parameters. The states of the
/// optimizers of server s are copied from and to it by worker s mod W of W workers. But without
/// common steps, in which workers may be lost, one worker saves alone: there each that saves copies
/// the states of all servers. Its parameters must be the servers' present ones.
class ServedState final : public Checkpointable {
 public:
  /// `shards`, `host` and `exchange` must outlive this.
  ServedState(ServedTensors tensors, Shards& shards, TrainingHost& host,
              servers::ServedExchange& exchange)
      : tensors_(std::move(tensors)), shards_(shards), host_(host), exchange_(exchange) {}

  /// Gives the servers the values of worker 0. Collective: no worker pushes before all have them.
  void load_values();

  std::vector<TensorPiece> pieces(bool make_states) override;
  /// Gives the servers the loaded values and states. Collective.
  void loaded() override;
  /// Each server's versions of its parts: {"versions": [[12, 12], [12, 12]]}.
  std::string progress() override;
  /// The servers go on from the versions that the units have on the server that was ahead, and
  /// workers from their share of these.
  void resume_at(std::int64_t step, const std::string& progress) override;

 private:
  std::vector<int> servers_of_worker(bool loading) const;

  ServedTensors tensors_;
  Shards& shards_;
  TrainingHost& host_;
  servers::ServedExchange& exchange_;
  std::map<int, TorchShards> copies_;  ///< By server: pieces() refers to their states.
};

}  // namespace gradwire
