#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/group.h"

namespace gradwire {

/// Returns the state of torch's default generator for a device (dropout, torch::randn), as an
/// opaque byte tensor. Restoring it with set_random_state() repeats all draws exactly. Thread-safe;
/// threads share one generator.
torch::Tensor random_state(c10::Device device = torch::kCPU);

/// Sets the generator's state to `state`, a result of random_state() for that device. Throws
/// c10::Error for any other tensor.
void set_random_state(const torch::Tensor& state, c10::Device device = torch::kCPU);

/// Seeds the generator of that device only, as torch::manual_seed(seed) does.
void set_random_seed(std::uint64_t seed, c10::Device device = torch::kCPU);

/// A tensor that is the same on all P ranks of a group, of which each rank keeps 1/P of the
/// elements, in memory order. The last part is padded with zeros.
struct PartitionedTensor {
  torch::Tensor part;  ///< 1-D, this rank's part: ceil(elements / P).
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

/// Returns a copy of this rank's part; the whole tensor may then be freed.
PartitionedTensor own_part(const torch::Tensor& whole, const c10d::ProcessGroup& group);

/// Restores the whole tensor, bit for bit; a dense one keeps its strides. Collective. Throws
/// Exception.
torch::Tensor gathered(const PartitionedTensor& tensor, c10d::ProcessGroup& group);

struct ActivationCheckpointOptions {
  /// Recompute with the random numbers of the first forward (dropout). Named as in PyTorch.
  bool preserve_rng_state = true;
  /// Ranks that call the same function with the same inputs at the same time (tensor parallelism).
  /// Each rank then keeps 1/P of the inputs' elements, and backward gathers them (Rajbhandari et
  /// al., arXiv:1910.02054, section 6.1: P_a). The gathers are collectives within forward and
  /// backward, in the same order on all ranks of the group. Null: every rank keeps the whole
  /// inputs.
  ProcessGroup partition_group;
};

using TensorFunction = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

/// checkpointed() from any number of tensors to any number of tensors.
std::vector<torch::Tensor> run_checkpointed(TensorFunction function,
                                            const std::vector<torch::Tensor>& inputs,
                                            const ActivationCheckpointOptions& options = {});

/// Returns true if a node of the autograd graph is a checkpoint. Its backward computes the function
/// again and adds to the gradients of the parameters that the function uses.
bool is_checkpoint(const torch::autograd::Node& node);

/// checkpointed(), below, with options.
template <class Function, class... Inputs>
requires(std::convertible_to<const Inputs&, torch::Tensor>&&...) auto checkpointed_with(
    const ActivationCheckpointOptions& options, const Function& function, const Inputs&... inputs) {
  const auto call = [function](const auto&... tensors) {
    auto copy = function;  // forward is not const in module holders.
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

/// Returns `function(inputs...)` without keeping its activations for backward: it keeps only the
/// inputs, and backward recomputes the rest (Chen et al., arXiv:1604.06174). That costs about a
/// third more compute if everything is checkpointed. Values and gradients are bitwise the same.
///
///     x = gradwire::checkpointed(block, x);   // a module holder, or any callable
///
/// `function` is copied and called again in backward. It must return the same result, so the
/// objects it refers to must still exist. Buffers that it changes (batch norm's statistics) are
/// changed twice. It returns a tensor or a vector of tensors. Throws what `function` throws.
///
/// Gradients of the parameters that `function` uses accumulate while backward recomputes it.
/// DataParallel's hooks see them but cannot find them in the graph beforehand. It is therefore
/// incompatible with find_unused_parameters and with parameters that are also used outside.
/// torch::autograd::grad() sees the inputs only.
///
/// With gradients disabled it only calls `function`. The call and backward may run on different
/// threads.
template <class Function, class... Inputs>
auto checkpointed(const Function& function, const Inputs&... inputs) {
  return checkpointed_with({}, function, inputs...);
}

/// `Impl`, a module from a tensor to a tensor, with checkpointed forward. Its parameters keep their
/// names. It can be a child of a torch::nn::Sequential or of any other module.
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
