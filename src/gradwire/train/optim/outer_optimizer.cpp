#include "gradwire/train/optim/outer_optimizer.h"

namespace gradwire {

void OuterOptimizer::step(torch::Tensor outer, torch::Tensor velocity,
                          torch::Tensor difference) const {
  if (has_velocity()) {
    velocity.mul_(momentum).add_(difference);
    difference.add_(velocity, momentum);
  }
  outer.sub_(difference, learning_rate);
}

}  // namespace gradwire
