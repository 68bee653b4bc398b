#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/data/partition.h"
#include "gradwire/federated/computed_updates.h"
#include "gradwire/train/federated/local_training.h"
#include "gradwire/train/federated/trainable_module.h"

namespace gradwire {

/// Trains a module on the samples of one client after another (LocalTraining), and evaluates the
/// global model on those that the client holds out. Floating buffers are averaged as parameters
/// are. Not thread-safe.
class ModuleTrainer final : public federated::ClientTrainer {
 public:
  /// `one_thread`: libtorch's operations use one thread in train(), where other clients train
  /// beside it. `data` and `clients` must outlive it. Throws as LocalTraining, and as
  /// federated_tensors().
  ModuleTrainer(TrainableModule module, const DataSet& data, const HeldOut& clients, LocalPlan plan,
                bool one_thread = true);

  federated::LocalResult train(const federated::LocalWork& work) override;

  /// Evaluates the global model on these samples of a data set.
  Evaluated evaluate(std::span<const float> model, std::span<const std::int64_t> samples,
                     const DataSet& data);

 private:
  void load(std::span<const float> model);
  torch::Tensor mean_loss(const torch::Tensor& inputs, const torch::Tensor& targets);
  void take_update(std::span<const float> model);

  TrainableModule module_;
  const DataSet& data_;
  const HeldOut& clients_;
  LocalTraining training_;
  bool one_thread_;
  std::vector<torch::Tensor> buffers_;
  torch::Tensor update_;
};

}  // namespace gradwire
