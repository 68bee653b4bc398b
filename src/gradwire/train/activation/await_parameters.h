#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/autograd_graph.h"

namespace gradwire {

/// Observes the blocks that forward runs. A block is a child of the wrapped Sequential, or a module
/// declared as one (Block, run_block()).
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;

  /// Called before the block uses its parameters.
  virtual void before_block(const torch::nn::Module& block) = 0;

  /// Called after the block ran. `outputs`: the tensors it returned; empty if its result type is
  /// unknown.
  virtual void after_block(const torch::nn::Module& block,
                           const std::vector<torch::Tensor>& outputs) = 0;
};

/// Returns the observer of blocks on this thread, or null. Code that runs a block again later
/// (activation checkpoints, in backward) restores it with a BlockScope.
BlockObserver* block_observer();

/// Sets this thread's block observer, which may be null, during its lifetime.
class [[nodiscard]] BlockScope {
 public:
  explicit BlockScope(BlockObserver* observer);
  ~BlockScope();
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  BlockObserver* before_;
};

/// Call in a module's forward before it uses the parameters of `block`. Waits until the gradients
/// of the previous step have arrived for these parameters and have been applied. Requires
/// DataParallelOptions::forward_awaits; DataParallel then checks that forward missed no block. No
/// effect outside a DataParallel's forward. ZeRO stage 3 also needs the end of a block: use
/// run_block() or Block.
void await_parameters(const torch::nn::Module& block);

/// Runs block.forward(arguments...) as a block.
template <class Module, class... Arguments>
auto run_block(Module& block, Arguments&&... arguments) {
  auto* observer = block_observer();
  if (observer == nullptr) return block.forward(std::forward<Arguments>(arguments)...);
  observer->before_block(block);
  auto output = block.forward(std::forward<Arguments>(arguments)...);
  observer->after_block(block, output_tensors(output));
  return output;
}

/// Marks a module's type as a block.
class DeclaredBlock {
 public:
  virtual ~DeclaredBlock() = default;
};

template <class Module>
class BlockImpl : public Module, public DeclaredBlock {
 public:
  using Module::Module;
};

/// `Contained` can be constructed from these arguments, and the first is not an existing module.
template <class Contained, class Holder, class First, class... Others>
concept Makes = std::constructible_from<Contained, First, Others...> &&
    !std::derived_from<std::remove_cvref_t<First>, Holder>;

/// Makes a module a block: declare `Block<torch::nn::Linear> fc` instead of `torch::nn::Linear fc`;
/// forward needs no change. The block awaits its own parameters, and is a unit of ZeRO stage 3.
template <class Holder>
class Block : public Holder {
  using Contained = typename Holder::ContainedType;

 public:
  Block() requires std::default_initializable<Contained>
      : Holder(std::shared_ptr<Contained>(std::make_shared<BlockImpl<Contained>>())) {}
  Block(std::nullptr_t) : Holder(nullptr) {}  // NOLINT: as the holder's.
  Block(std::shared_ptr<Contained> module) : Holder(std::move(module)) {}  // NOLINT
  template <class First, class... Others>
  requires Makes<Contained, Holder, First, Others...>
  explicit Block(First&& first, Others&&... others)
      : Holder(std::shared_ptr<Contained>(std::make_shared<BlockImpl<Contained>>(
            std::forward<First>(first), std::forward<Others>(others)...))) {}

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return run_block(**this, std::forward<Arguments>(arguments)...);
  }
};

/// Runs the children of a Sequential in order, each as a block.
template <class... Inputs>
torch::Tensor forward_by_children(torch::nn::SequentialImpl& sequential, Inputs&&... inputs) {
  TORCH_CHECK(!sequential.is_empty(), "Cannot call forward() on an empty Sequential");
  auto* observer = block_observer();
  const auto run_child = [observer](torch::nn::AnyModule& child, auto&&... values) {
    if (observer != nullptr) observer->before_block(*child.ptr());
    auto value = child.any_forward(std::forward<decltype(values)>(values)...);
    if (observer == nullptr) return value;
    const auto* tensor = value.template try_get<torch::Tensor>();
    observer->after_block(*child.ptr(), tensor == nullptr ? std::vector<torch::Tensor>{}
                                                          : std::vector<torch::Tensor>{*tensor});
    return value;
  };
  auto child = sequential.begin();
  auto value = run_child(*child, std::forward<Inputs>(inputs)...);
  for (++child; child != sequential.end(); ++child) value = run_child(*child, std::move(value));
  return value.template get<torch::Tensor>();
}

}  // namespace gradwire
