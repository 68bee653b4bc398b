#include "gradwire/host/gradient_hooks.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>

namespace gradwire {
namespace {

class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(GradientListener& listener, std::size_t parameter)
      : listener_(listener), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    listener_.on_gradient(parameter_);
    return outputs;
  }

  const GradientListener& listener() const { return listener_; }

 private:
  GradientListener& listener_;
  std::size_t parameter_;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<NamedTensor>& parameters, GradientListener& listener)
    : listener_(listener), alive_(std::make_shared<GradientListener*>(&listener)) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i].tensor);
    hooks_.push_back(accumulator->add_post_hook(std::make_unique<GradientHook>(listener, i)));
    accumulators_.push_back(std::move(accumulator));
  }
}

GradientHooks::~GradientHooks() {
  for (std::size_t i = 0; i < accumulators_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

void GradientHooks::call_at_end_of_backward() {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [alive = std::weak_ptr<GradientListener*>(alive_)] {
        if (const auto listener = alive.lock()) (*listener)->on_end_of_backward();
      });
}

bool GradientHooks::expected_by_another(std::size_t parameter) const {
  return std::ranges::any_of(accumulators_[parameter]->post_hooks(), [this](const auto& hook) {
    const auto* other = dynamic_cast<const GradientHook*>(hook.get());
    return other != nullptr && &other->listener() != &listener_ &&
           other->listener().expects_gradients();
  });
}

}  // namespace gradwire
