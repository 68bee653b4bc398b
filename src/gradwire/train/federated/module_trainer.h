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

namespace gradwire {

/// A module, and how it is trained and evaluated.
struct TrainableModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;
  /// The mean loss of a batch.
  std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)> loss;
  /// It draws random numbers, as dropout does: libtorch's default generator is seeded for each
  /// client. That generator is the process's, so that only one thread may train.
  bool draws_random_numbers = false;
};

/// How well a model classifies samples.
struct Evaluated {
  std::int64_t samples = 0;  ///< Targets: of text, its characters.
  std::int64_t correct = 0;
  double loss = 0;  ///< Sum over the samples.

  double accuracy() const {
    return samples > 0 ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
  }
  double mean_loss() const { return samples > 0 ? loss / static_cast<double>(samples) : 0; }
};

/// Trains a module on the samples of one client after another (LocalTraining), and evaluates the
/// global model on those that the client holds out. Floating buffers are averaged as parameters
/// are. Not thread-safe.
class ModuleTrainer final : public federated::ClientTrainer {
 public:
  /// `data` and `clients` must outlive it. Throws as LocalTraining, and as federated_tensors().
  ModuleTrainer(TrainableModule module, const DataSet& data, const HeldOut& clients,
                LocalPlan plan);

  federated::LocalResult train(const federated::LocalWork& work) override;

  /// Evaluates the global model on these samples of a data set.
  Evaluated evaluate(std::span<const float> model, std::span<const std::int64_t> samples,
                     const DataSet& data);

 private:
  void load(std::span<const float> model);
  void take_update(std::span<const float> model);

  TrainableModule module_;
  const DataSet& data_;
  const HeldOut& clients_;
  LocalTraining training_;
  std::vector<torch::Tensor> buffers_;
  torch::Tensor update_;
};

}  // namespace gradwire
