#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/pipeline/weight_versions.h"

/// Weights that an asynchronous pipeline predicts, and updates that make up for late gradients. A
/// forward in stage s of p happens D = p-1-s updates before the one that its gradient is for; while
/// the pipeline fills, fewer. Notation: weights w, learning rate r, velocity v with
/// w(t+1) = w(t) - r v(t+1).
///
///   - SpecTrain (Chen et al., arXiv:1809.02839): w - r n v in forward and backward, where n is the
///     number of updates until the micro-batch has left the pipeline, at stage 0: D + floor(s/2) in
///     the forward, floor(s/2) in the backward. All stages so aim at one moment, in which all
///     versions would be the same.
///   - LWP-v (Kosson et al., arXiv:2003.11666): w - r D v in the forward, w in the backward.
///   - LWP-w (the same): w(t) + D (w(t) - w(t-1)) in the forward, w(t) in the backward. For any
///     optimizer; has no prediction for the first update.
///   - Spike compensation (the same): w in both; w(t+1) = w(t) - r (a v(t+1) + b g(t)) with
///     a = m^D, b = (1 - m^D) / (1 - m), gradient g and momentum m: a late gradient acts at once as
///     it would have acted by now, and each gradient's sum over time stays 1 / (1 - m).
namespace gradwire {

/// The change of a parameter in one update that repeats the last one: -rate * direction.
struct Velocity {
  torch::Tensor direction;
  double rate = 0;
};

/// Returns the velocity from the states that the optimizer keeps for `parameter`, of `group`:
/// SGD's momentum, which includes weight decay; Adam's mean over the root of its mean square, as in
/// XPipe (Guan et al., arXiv:1911.04610), and AdamW's with decay. Before the first update: nullopt.
std::optional<Velocity> velocity_of(torch::optim::Optimizer& optimizer,
                                    const torch::optim::OptimizerParamGroup& group,
                                    const torch::Tensor& parameter);

/// Writes to `predicted` the weights after `updates` updates at this velocity.
void predict_weights(torch::Tensor& predicted, const torch::Tensor& weights,
                     const Velocity& velocity, int updates);

/// Writes to `predicted` the weights after `updates` updates like the one from `before` to
/// `weights`.
void extend_update(torch::Tensor& predicted, const torch::Tensor& weights,
                   const torch::Tensor& before, int updates);

/// Factors of spike compensation for a momentum and a delay in updates.
struct SpikeFactors {
  double velocity = 1;  ///< a
  double gradient = 0;  ///< b
};
SpikeFactors spike_factors(double momentum, int delay);

/// Makes the weights of a method that keeps one version and at most one predicted copy (lwp_w: and
/// the version before). Throws Exception(invalid_argument) for an optimizer that it does not
/// support.
std::unique_ptr<StageWeights> make_single_version(WeightMethod method, const StagePlace& place,
                                                  std::vector<torch::Tensor> parameters,
                                                  torch::optim::Optimizer& optimizer);

}  // namespace gradwire
