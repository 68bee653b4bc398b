#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "gradwire/host/named_tensor.h"

namespace gradwire {

/// Gets the gradients of parameters as backward produces them. Called on autograd's threads.
class GradientListener {
 public:
  virtual ~GradientListener() = default;

  /// The parameter's gradient of this backward is in its grad().
  virtual void on_gradient(std::size_t parameter) = 0;
  /// The backward in which call_at_end_of_backward() was called has ended.
  virtual void on_end_of_backward() = 0;
  /// Returns true if the next backward's gradients belong to this listener.
  virtual bool expects_gradients() const = 0;
};

/// Hooks on the gradient accumulators of parameters, from construction to destruction.
class GradientHooks {
 public:
  /// `listener` must outlive this.
  GradientHooks(const std::vector<NamedTensor>& parameters, GradientListener& listener);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// Called within backward. The listener may be gone when backward ends; it is then not called.
  void call_at_end_of_backward();

  /// Returns true if another listener on the same parameter expects gradients.
  bool expected_by_another(std::size_t parameter) const;

  /// The node at which the graph ends in the parameter.
  const torch::autograd::Node* accumulator(std::size_t parameter) const {
    return accumulators_[parameter].get();
  }

 private:
  GradientListener& listener_;
  /// Kept alive here: the graph holds weak references.
  std::vector<decltype(torch::autograd::Edge::function)> accumulators_;
  std::vector<std::uintptr_t> hooks_;
  std::shared_ptr<GradientListener*> alive_;  ///< Callbacks hold weak references to it.
};

}  // namespace gradwire
