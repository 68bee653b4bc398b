#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/servers/lock_free_updates.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

/// Parameters that the modules of several threads share, and their update by a gradient. With one
/// thread it has the bits of libtorch's SGD or Adagrad. servers::LockFreeUpdates reads and writes
/// the shared memory; libtorch computes in memory of the calling thread alone.
class SharedParameters {
 public:
  /// Shares those of `module`. Throws Exception(invalid_argument) for an optimizer or a parameter
  /// with which it cannot work.
  SharedParameters(const torch::nn::Module& module, const OptimizerFactory& factory);

  /// Gives the parameters of `module` the memory of the shared ones. Throws
  /// Exception(invalid_argument) if it has others.
  void share_with(const torch::nn::Module& module) const;

  /// Returns the parameters of `module`, in the order of the shared ones.
  static std::vector<torch::Tensor> parameters_of(const torch::nn::Module& module);

  /// Updates the shared parameters by the gradients of `own`, at `rate` times the learning rates,
  /// and drops the gradients. Threads may call it at the same time.
  void update(std::vector<torch::Tensor>& own, double rate,
              servers::LockFreeUpdates& updates) const;

 private:
  /// How a parameter is stepped.
  struct Rule {
    double learning_rate = 0;
    double weight_decay = 0;
    torch::Tensor squares;  ///< Adagrad's sums, shared; undefined with SGD.
    double epsilon = 0;     ///< Adagrad.
    bool steps = false;     ///< False for frozen parameters, and those in no group.
  };
  struct Member {
    std::string name;
    torch::Tensor values;
    Rule rule;
  };

  void read_rules(const torch::optim::OptimizerParamGroup& group);
  static void update_dense(const Member& member, torch::Tensor gradient, double rate,
                           servers::LockFreeUpdates& updates);
  static void update_rows(const Member& member, torch::Tensor gradient, double rate,
                          servers::LockFreeUpdates& updates);

  std::unique_ptr<torch::optim::Optimizer> optimizer_;  ///< Owns the sums.
  std::vector<Member> members_;
};

}  // namespace gradwire
