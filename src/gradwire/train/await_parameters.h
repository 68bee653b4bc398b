#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/output_tensors.h"

namespace gradwire {

/// Learns of each block that a forward runs: a child of the wrapped Sequential, or a module that is
/// declared as one (Block, run_block()). What is in no block has no such moments.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;

  /// The block is about to use its parameters.
  virtual void before_block(const torch::nn::Module& block) = 0;

  /// It has run. `outputs`: the tensors it returned; none if nobody knows how to look for them.
  virtual void after_block(const torch::nn::Module& block,
                           const std::vector<torch::Tensor>& outputs) = 0;
};

/// Who observes blocks on this thread; null: nobody. What runs a block again later (activation
/// checkpoints, in backward) gives it back with a BlockScope.
BlockObserver* block_observer();

/// While it lives, blocks that run on this thread are this observer's. May be null.
class [[nodiscard]] BlockScope {
 public:
  explicit BlockScope(BlockObserver* observer);
  ~BlockScope();
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  BlockObserver* before_;
};

/// To be called in a module's forward before it uses the parameters of `block`: waits until their
/// gradients of the step before have come and been applied, and no longer. The module's
/// DataParallel must have been told (DataParallelOptions::forward_awaits), and it then checks that
/// nothing was forgotten. Does nothing outside of a DataParallel's forward. ZeRO's stage 3 needs
/// to know a block's end, too: run_block(), or Block.
void await_parameters(const torch::nn::Module& block);

/// block.forward(arguments...), as a block.
template <class Module, class... Arguments>
auto run_block(Module& block, Arguments&&... arguments) {
  auto* observer = block_observer();
  if (observer == nullptr) return block.forward(std::forward<Arguments>(arguments)...);
  observer->before_block(block);
  auto output = block.forward(std::forward<Arguments>(arguments)...);
  observer->after_block(block, output_tensors(output));
  return output;
}

/// By this a module's type says that it is a block.
class DeclaredBlock {
 public:
  virtual ~DeclaredBlock() = default;
};

template <class Module>
class BlockImpl : public Module, public DeclaredBlock {
 public:
  using Module::Module;
};

/// A module can be made of these arguments, of which the first is no module already made.
template <class Contained, class Holder, class First, class... Others>
concept Makes = std::constructible_from<Contained, First, Others...> &&
    !std::derived_from<std::remove_cvref_t<First>, Holder>;

/// A block: declare `Block<torch::nn::Linear> fc` where `torch::nn::Linear fc` was, and forward
/// stays as it is. It awaits its own parameters, and is a unit of ZeRO's stage 3.
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

/// Runs the children of a Sequential one after the other, each as a block.
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
