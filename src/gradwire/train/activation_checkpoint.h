#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/group.h"

namespace gradwire {

struct ActivationCheckpointOptions {
  /// Recompute with the random numbers of the first time (dropout). Named as in PyTorch.
  bool preserve_rng_state = true;
  /// Ranks that call the same function with the same inputs at the same time (tensor parallelism):
  /// each then keeps 1/P of the inputs' elements, and they are gathered when backward needs them
  /// (Rajbhandari et al., arXiv:1910.02054, section 6.1: P_a). Null: each keeps them whole. Its
  /// collectives are part of forward's and backward's order, the same on all its ranks.
  ProcessGroup partition_group;
};

using TensorFunction = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

/// checkpointed() of any number of tensors to any number of tensors.
std::vector<torch::Tensor> run_checkpointed(TensorFunction function,
                                            const std::vector<torch::Tensor>& inputs,
                                            const ActivationCheckpointOptions& options = {});

/// checkpointed(), below, with options.
template <class Function, class... Inputs>
requires(std::convertible_to<const Inputs&, torch::Tensor>&&...) auto checkpointed_with(
    const ActivationCheckpointOptions& options, const Function& function, const Inputs&... inputs) {
  const auto call = [function](const auto&... tensors) {
    auto copy = function;  // Holders' forward is not const.
    if constexpr (requires { copy->forward(tensors...); }) {
      return copy->forward(tensors...);
    } else {
      return copy(tensors...);
    }
  };
  using Result = std::remove_cvref_t<decltype(call(torch::Tensor(inputs)...))>;
  const auto apply = [call]<std::size_t... I>(const std::vector<torch::Tensor>& tensors,
                                              std::index_sequence<I...>) {
    return call(tensors[I]...);
  };
  auto outputs = run_checkpointed(
      [apply](const std::vector<torch::Tensor>& tensors) -> std::vector<torch::Tensor> {
        return {apply(tensors, std::index_sequence_for<Inputs...>())};
      },
      {torch::Tensor(inputs)...}, options);
  if constexpr (std::convertible_to<Result, torch::Tensor>) {
    return std::move(outputs.front());
  } else {
    return outputs;
  }
}

/// What `function(inputs...)` gives, without keeping what its backward needs: only the inputs are
/// kept, and backward computes the rest once more (Chen et al., arXiv:1604.06174): about a third
/// more compute where everything is checkpointed. Values and gradients are the same, bit for bit.
///
///     x = gradwire::checkpointed(block, x);   // a module holder, or anything that can be called
///
/// `function` is copied and called again in backward: it must do the same again, so what it refers
/// to must live, and buffers that it changes (batch norm's statistics) are changed twice. It
/// returns a tensor or a vector of tensors. Gradients of the parameters that it uses accumulate
/// while backward recomputes it; a DataParallel's hooks see them, but cannot find them beforehand:
/// not with find_unused_parameters, and not a parameter that is used outside as well.
/// torch::autograd::grad() sees the inputs only. With gradients off it just calls. Where it is
/// called and backward may be different threads. Throws what `function` throws.
template <class Function, class... Inputs>
auto checkpointed(const Function& function, const Inputs&... inputs) {
  return checkpointed_with({}, function, inputs...);
}

/// `Impl`, a module from a tensor to a tensor, whose forward is checkpointed: a module like any
/// other, its parameters under the same names, to be a child of a torch::nn::Sequential or of one's
/// own module.
template <class Impl>
class CheckpointedImpl : public Impl {
 public:
  using Impl::Impl;

  torch::Tensor forward(const torch::Tensor& input) {
    const auto self = std::static_pointer_cast<CheckpointedImpl>(this->shared_from_this());
    return checkpointed_with(
        options, [self](const torch::Tensor& tensor) { return self->Impl::forward(tensor); },
        input);
  }

  ActivationCheckpointOptions options;
};

}  // namespace gradwire
