#include "gradwire/train/checkpoint/optimizer_state.h"

#include <memory>

#include "gradwire/base/error.h"
#include "gradwire/train/optim/delayed_nesterov.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/optim/ranger_lars.h"
#include "gradwire/train/optim/rectified_adam.h"
#include "gradwire/train/optim/yogi.h"

namespace gradwire {
namespace {

namespace optim = torch::optim;

[[noreturn]] void refuse_kind() {
  throw Exception(ErrorKind::unsupported,
                  "this optimizer's states cannot be saved in a checkpoint; use SGD, Adam, AdamW, "
                  "RMSprop, Adagrad, RAdam, Yogi, Lars, Lamb or RangerLars");
}

/// Collects the states of one parameter; undefined ones are skipped.
struct States {
  std::vector<NamedState> list;

  States& tensor(const char* name, const torch::Tensor& value) {
    if (value.defined()) list.push_back({name, value.detach()});
    return *this;
  }
  States& count(std::int64_t& value) {
    list.push_back({"step", torch::from_blob(&value, {}, torch::kInt64)});
    return *this;
  }
  template <class State>
  States& moments(State& state) {
    return count(state.step())
        .tensor("exp_avg", state.exp_avg())
        .tensor("exp_avg_sq", state.exp_avg_sq());
  }
};

template <class State>
std::vector<NamedState> adam_states(State& state) {
  return States().moments(state).tensor("max_exp_avg_sq", state.max_exp_avg_sq()).list;
}

torch::Tensor zeros(const torch::Tensor& parameter) {
  return torch::zeros_like(parameter, torch::MemoryFormat::Preserve).detach();
}

template <class State, class Options>
std::unique_ptr<optim::OptimizerParamState> new_adam(const torch::Tensor& parameter,
                                                     const optim::OptimizerOptions& options) {
  auto state = std::make_unique<State>();
  state->exp_avg(zeros(parameter)).exp_avg_sq(zeros(parameter));
  if (static_cast<const Options&>(options).amsgrad()) state->max_exp_avg_sq(zeros(parameter));
  return state;
}

template <class State>
std::unique_ptr<State> new_moments(const torch::Tensor& parameter) {
  auto state = std::make_unique<State>();
  state->exp_avg(zeros(parameter)).exp_avg_sq(zeros(parameter));
  return state;
}

std::unique_ptr<optim::OptimizerParamState> new_yogi(const torch::Tensor& parameter,
                                                     const optim::OptimizerOptions& options) {
  const double eps = static_cast<const YogiOptions&>(options).eps();
  auto state = new_moments<YogiParamState>(parameter);
  state->exp_avg_sq().fill_(eps * eps);
  return state;
}

std::unique_ptr<optim::OptimizerParamState> new_ranger(const torch::Tensor& parameter) {
  auto state = new_moments<RangerLarsParamState>(parameter);
  state->slow(parameter.detach().clone());
  return state;
}

std::unique_ptr<optim::OptimizerParamState> new_delayed(const torch::Tensor& parameter) {
  auto state = std::make_unique<DelayedNesterovParamState>();
  state->momentum_buffer(zeros(parameter)).difference_sum(zeros(parameter));
  return state;
}

/// Returns null without momentum, which needs no state.
template <class State, class Options>
std::unique_ptr<optim::OptimizerParamState> new_momentum(const torch::Tensor& parameter,
                                                         const optim::OptimizerOptions& options) {
  if (static_cast<const Options&>(options).momentum() == 0) return nullptr;
  auto state = std::make_unique<State>();
  state->momentum_buffer(zeros(parameter));
  return state;
}

std::unique_ptr<optim::OptimizerParamState> new_rms(const torch::Tensor& parameter,
                                                    const optim::OptimizerOptions& options) {
  const auto& settings = static_cast<const optim::RMSpropOptions&>(options);
  auto state = std::make_unique<optim::RMSpropParamState>();
  state->square_avg(zeros(parameter));
  if (settings.momentum() > 0) state->momentum_buffer(zeros(parameter));
  if (settings.centered()) state->grad_avg(zeros(parameter));
  return state;
}

std::unique_ptr<optim::OptimizerParamState> new_sum(const torch::Tensor& parameter,
                                                    const optim::OptimizerOptions& options) {
  const auto& settings = static_cast<const optim::AdagradOptions&>(options);
  auto state = std::make_unique<optim::AdagradParamState>();
  state->sum(torch::full_like(parameter, settings.initial_accumulator_value()).detach());
  return state;
}

template <class Options>
bool are(const optim::OptimizerOptions& options) {
  return dynamic_cast<const Options*>(&options) != nullptr;
}

/// Selects by the options' type, which identifies optimizers that have no state yet.
std::unique_ptr<optim::OptimizerParamState> new_state(const torch::Tensor& parameter,
                                                      const optim::OptimizerOptions& options) {
  using optim::AdamOptions, optim::AdamParamState, optim::AdamWOptions, optim::AdamWParamState;
  using optim::SGDOptions, optim::SGDParamState;
  if (are<AdamOptions>(options)) return new_adam<AdamParamState, AdamOptions>(parameter, options);
  if (are<AdamWOptions>(options)) {
    return new_adam<AdamWParamState, AdamWOptions>(parameter, options);
  }
  if (are<SGDOptions>(options)) return new_momentum<SGDParamState, SGDOptions>(parameter, options);
  if (are<LarsOptions>(options)) {
    return new_momentum<LarsParamState, LarsOptions>(parameter, options);
  }
  if (are<LambOptions>(options)) return new_moments<LambParamState>(parameter);
  if (are<RAdamOptions>(options)) return new_moments<RAdamParamState>(parameter);
  if (are<YogiOptions>(options)) return new_yogi(parameter, options);
  if (are<RangerLarsOptions>(options)) return new_ranger(parameter);
  if (are<DelayedNesterovOptions>(options)) return new_delayed(parameter);
  if (are<optim::RMSpropOptions>(options)) return new_rms(parameter, options);
  if (are<optim::AdagradOptions>(options)) return new_sum(parameter, options);
  refuse_kind();
}

}  // namespace

std::vector<NamedState> states_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end() || !found->second) return {};
  auto* state = found->second.get();
  if (auto* adam = dynamic_cast<optim::AdamParamState*>(state)) return adam_states(*adam);
  if (auto* adamw = dynamic_cast<optim::AdamWParamState*>(state)) return adam_states(*adamw);
  if (auto* sgd = dynamic_cast<optim::SGDParamState*>(state)) {
    return States().tensor("momentum_buffer", sgd->momentum_buffer()).list;
  }
  if (auto* lars = dynamic_cast<LarsParamState*>(state)) {
    return States().tensor("momentum_buffer", lars->momentum_buffer()).list;
  }
  if (auto* lamb = dynamic_cast<LambParamState*>(state)) return States().moments(*lamb).list;
  if (auto* radam = dynamic_cast<RAdamParamState*>(state)) return States().moments(*radam).list;
  if (auto* yogi = dynamic_cast<YogiParamState*>(state)) {
    return States()
        .tensor("exp_avg", yogi->exp_avg())
        .tensor("exp_avg_sq", yogi->exp_avg_sq())
        .list;
  }
  if (auto* ranger = dynamic_cast<RangerLarsParamState*>(state)) {
    return States().moments(*ranger).tensor("slow", ranger->slow()).list;
  }
  if (auto* delayed = dynamic_cast<DelayedNesterovParamState*>(state)) {
    return States()
        .count(delayed->step())
        .tensor("momentum_buffer", delayed->momentum_buffer())
        .tensor("difference_sum", delayed->difference_sum())
        .list;
  }
  if (auto* rms = dynamic_cast<optim::RMSpropParamState*>(state)) {
    return States()
        .count(rms->step())
        .tensor("square_avg", rms->square_avg())
        .tensor("momentum_buffer", rms->momentum_buffer())
        .tensor("grad_avg", rms->grad_avg())
        .list;
  }
  if (auto* sum = dynamic_cast<optim::AdagradParamState*>(state)) {
    return States().count(sum->step()).tensor("sum", sum->sum()).list;
  }
  refuse_kind();
}

void make_states(optim::Optimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  for (auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      auto& states = optimizer.state();
      const auto found = states.find(parameter.unsafeGetTensorImpl());
      if (found != states.end() && found->second && !states_of(optimizer, parameter).empty()) {
        continue;
      }
      if (auto made = new_state(parameter, group.options())) {
        states[parameter.unsafeGetTensorImpl()] = std::move(made);
      }
    }
  }
}

}  // namespace gradwire
