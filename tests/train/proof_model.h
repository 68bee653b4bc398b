#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/step/overlap.h"

namespace gradwire::test {

/// Small, in float64, with the difficult cases of data parallelism: convolution, batch norm (in
/// eval mode, because its batch statistics depend on the split), a parameter registered twice, a
/// branch that only some samples of some batches take, and one that none takes.
struct ProofNetImpl : torch::nn::Module {
  ProofNetImpl();

  /// `inputs`: N x 1 x 8 x 8; the first `branching` samples take the branch.
  torch::Tensor forward(const torch::Tensor& inputs, std::int64_t branching);

  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear first{nullptr};
  torch::Tensor tied;  ///< first->weight, under a second name.
  torch::nn::Linear branch{nullptr};
  torch::nn::Linear never{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(ProofNet);

using Parameters = std::map<std::string, torch::Tensor>;

/// The optimizer to train with.
enum class Rule { sgd_with_momentum, adam };

/// For the names of tests.
inline void PrintTo(Rule rule, std::ostream* out) {
  *out << (rule == Rule::adam ? "adam" : "sgd_with_momentum");
}

/// Options that must not change the result.
struct ProofOptions {
  bool optimizer_per_bucket = false;  ///< If true, DataParallel steps; otherwise one optimizer for
                                      ///< all.
  step::Overlap overlap = step::Overlap::backward;
  bool forward_awaits = false;
  int accumulation_steps = 1;  ///< This changes the last bits.
};

/// Trains ProofNet for `steps` steps with a global batch of 16, of which this rank takes its part,
/// and returns its parameters. A group of one is plain single-process training.
Parameters train_proof_net(const ProcessGroup& group, Rule rule, int steps,
                           const ProofOptions& options = {});

/// Returns the maximum absolute difference over all parameters.
double largest_difference(const Parameters& a, const Parameters& b);

}  // namespace gradwire::test
