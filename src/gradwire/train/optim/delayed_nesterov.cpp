#include "gradwire/train/optim/delayed_nesterov.h"

#include <memory>

#include "gradwire/base/refuse.h"
#include "gradwire/train/optim/each_parameter.h"

namespace gradwire {
namespace {

void update(torch::Tensor& weights, const DelayedNesterovOptions& options,
            DelayedNesterovParamState& state) {
  if (!state.momentum_buffer().defined()) {
    state.momentum_buffer(torch::zeros_like(weights)).difference_sum(torch::zeros_like(weights));
  }
  const auto every = static_cast<double>(options.every());
  torch::Tensor step = weights.grad() / every;
  state.difference_sum().add_(weights.grad());
  if (++state.step() % options.every() == 0) {
    state.momentum_buffer().mul_(options.momentum()).add_(state.difference_sum() / every);
    state.difference_sum().zero_();
    step.add_(state.momentum_buffer(), options.momentum());
  }
  weights.sub_(step, options.lr());
}

}  // namespace

DelayedNesterov::DelayedNesterov(std::vector<torch::Tensor> parameters,
                                 DelayedNesterovOptions options)
    : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                std::make_unique<DelayedNesterovOptions>(options)) {
  if (options.every() < 1) {
    refuse("DelayedNesterov: every is {}; it must be at least 1", options.every());
  }
  if (!(options.lr() > 0) || !(options.momentum() >= 0 && options.momentum() < 1)) {
    refuse("DelayedNesterov: lr is {} and momentum {}; lr must be positive, and momentum in [0, 1)",
           options.lr(), options.momentum());
  }
}

torch::Tensor DelayedNesterov::step(LossClosure closure) {
  return step_each<DelayedNesterovOptions>(*this, closure, [&](auto& weights, const auto& options) {
    update(weights, options, state_of<DelayedNesterovParamState>(*this, weights));
  });
}

}  // namespace gradwire
