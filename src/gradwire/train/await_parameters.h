#pragma once

#include <utility>

#include <torch/torch.h>

namespace gradwire {

class BucketSteps;

/// To be called in a module's forward before it uses the parameters of `block`: waits until their
/// gradients of the step before have come and been applied, and no longer. The module's
/// DataParallel must have been told (DataParallelOptions::forward_awaits), and it then checks that
/// nothing was forgotten. Does nothing outside of a DataParallel's forward.
void await_parameters(const torch::nn::Module& block);

/// A block that awaits its own parameters: declare `Block<torch::nn::Linear> fc` where
/// `torch::nn::Linear fc` was, and forward stays as it is.
template <class Holder>
class Block : public Holder {
 public:
  using Holder::Holder;

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    await_parameters(**this);
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

/// Runs the children of a Sequential one after the other, each when its parameters are there.
template <class... Inputs>
torch::Tensor forward_by_children(torch::nn::SequentialImpl& sequential, Inputs&&... inputs) {
  TORCH_CHECK(!sequential.is_empty(), "Cannot call forward() on an empty Sequential");
  auto child = sequential.begin();
  await_parameters(*child->ptr());
  auto value = child->any_forward(std::forward<Inputs>(inputs)...);
  for (++child; child != sequential.end(); ++child) {
    await_parameters(*child->ptr());
    value = child->any_forward(std::move(value));
  }
  return value.template get<torch::Tensor>();
}

/// While it lives, await_parameters() on this thread is about these steps. May be null.
class [[nodiscard]] AwaitScope {
 public:
  explicit AwaitScope(BucketSteps* steps);
  ~AwaitScope();
  AwaitScope(const AwaitScope&) = delete;
  AwaitScope& operator=(const AwaitScope&) = delete;

 private:
  BucketSteps* before_;
};

}  // namespace gradwire
