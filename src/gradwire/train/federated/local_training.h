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
#include "gradwire/train/federated/global_model.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

/// A client's local training: the same for all clients, whose steps follow from their samples.
struct LocalTrainingOptions {
  std::int64_t epochs = 1;
  std::int64_t batch_size = 10;  ///< 0: all samples of the client. An epoch's last batch may be
                                 ///< smaller.
  OptimizerFactory optimizer;    ///< Made anew for each client and round.
  std::uint64_t seed = 0;        ///< Shuffles the samples, with round, client and epoch.
  /// Seeds libtorch's default generator for each client, as modules with dropout need. That
  /// generator is the process's: at most one thread may train.
  bool draws_random_numbers = false;
};

/// A module that is trained on clients, one after the other.
struct TrainableModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;
  /// The mean loss of a batch.
  std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)> loss;
};

/// Trains a module on one client's samples at a time, and evaluates the global model on those that
/// it holds out. With a proximal term mu / 2 |w - w_t|^2 around the global model w_t, mu (w - w_t)
/// is added to the gradient (FedProx: Li et al., MLSys 2020, section 3.2). Not thread-safe.
class LocalTraining final : public federated::ClientTrainer {
 public:
  /// `data` and `clients` must outlive it. Tensors are those of federated_tensors().
  LocalTraining(TrainableModule module, const DataSet& data, const HeldOut& clients,
                const LocalTrainingOptions& options);

  federated::LocalResult train(const federated::LocalWork& work) override;

  struct Evaluated {
    std::int64_t samples = 0;  ///< Targets: of text, its characters.
    std::int64_t correct = 0;
    double loss = 0;  ///< Sum over the samples.

    double accuracy() const {
      return samples > 0 ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
    }
    double mean_loss() const { return samples > 0 ? loss / static_cast<double>(samples) : 0; }
  };
  /// Evaluates the global model on these samples.
  Evaluated evaluate(std::span<const float> model, std::span<const std::int64_t> samples,
                     const DataSet& data);

 private:
  void set_model(std::span<const float> model);
  void step_on(const torch::Tensor& inputs, const torch::Tensor& targets, double proximal);
  void descend();
  std::int64_t steps_of(std::int64_t samples, double epochs) const;

  TrainableModule module_;
  const DataSet& data_;
  const HeldOut& clients_;
  LocalTrainingOptions options_;
  std::vector<torch::Tensor> tensors_;  ///< Parameters, then averaged buffers.
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> global_;  ///< Views of global values, of `parameters_`.
  std::vector<NamedTensor> named_;
  torch::Tensor global_values_, update_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  double plain_rate_ =
      0;  ///< Of SGD without momentum and decay, which is stepped at once; 0: other.
  double loss_sum_ = 0;
};

}  // namespace gradwire
