#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>

#include <torch/torch.h>

#include "gradwire/gradient/overlap.h"
#include "gradwire/train/group.h"

namespace gradwire::test {

/// Small, in float64, and with what makes data parallelism hard: convolution, batch norm (used in
/// eval mode, as its batch statistics depend on the split), a parameter registered twice, a branch
/// that only some samples of some batches take, and one that none takes.
struct ProofNetImpl : torch::nn::Module {
  ProofNetImpl();

  /// `inputs` N x 1 x 8 x 8; the first `branching` samples go through the branch.
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

/// Which optimiser to train with.
enum class Rule { sgd_with_momentum, adam };

/// For the names of tests.
inline void PrintTo(Rule rule, std::ostream* out) {
  *out << (rule == Rule::adam ? "adam" : "sgd_with_momentum");
}

/// What must not change the result.
struct ProofOptions {
  bool optimizer_per_bucket = false;  ///< And DataParallel steps; otherwise one for all.
  Overlap overlap = Overlap::backward;
  bool forward_awaits = false;
  int accumulation_steps = 1;  ///< This changes the last bits.
};

/// Trains ProofNet for `steps` steps with a global batch of 16, this rank taking its part of each,
/// and returns its parameters. A group of one is plain training of one process.
Parameters train_proof_net(const ProcessGroup& group, Rule rule, int steps,
                           const ProofOptions& options = {});

/// The largest absolute difference over all parameters.
double largest_difference(const Parameters& a, const Parameters& b);

}  // namespace gradwire::test
