#include "gradwire/train/pipeline/weight_prediction.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

using pipeline::Compute;
using torch::optim::OptimizerParamGroup;

template <class State>
State* find_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : dynamic_cast<State*>(found->second.get());
}

template <class Options>
const Options* options_as(const OptimizerParamGroup& group) {
  return group.has_options() ? dynamic_cast<const Options*>(&group.options()) : nullptr;
}

/// Adam's step without the learning rate.
template <class State, class Options>
std::optional<torch::Tensor> adam_direction(torch::optim::Optimizer& optimizer,
                                            const Options& options,
                                            const torch::Tensor& parameter) {
  auto* state = find_state<State>(optimizer, parameter);
  if (!state || state->step() == 0) return std::nullopt;
  const auto [beta1, beta2] = options.betas();
  const auto steps = static_cast<double>(state->step());
  const double mean = 1 - std::pow(beta1, steps);
  const double square = 1 - std::pow(beta2, steps);
  return (state->exp_avg() / mean) / ((state->exp_avg_sq() / square).sqrt() + options.eps());
}

bool has_velocity(const OptimizerParamGroup& group) {
  if (const auto* sgd = options_as<torch::optim::SGDOptions>(group)) return sgd->momentum() > 0;
  if (const auto* adam = options_as<torch::optim::AdamOptions>(group)) return !adam->amsgrad();
  const auto* adamw = options_as<torch::optim::AdamWOptions>(group);
  return adamw && !adamw->amsgrad();
}

bool has_plain_momentum(const OptimizerParamGroup& group) {
  const auto* sgd = options_as<torch::optim::SGDOptions>(group);
  return sgd && !sgd->nesterov() && sgd->dampening() == 0;
}

/// Returns, by parameter, the index of its group.
std::vector<std::size_t> groups_of(const std::vector<torch::Tensor>& parameters,
                                   const torch::optim::Optimizer& optimizer) {
  std::vector<std::size_t> all;
  for (const torch::Tensor& parameter : parameters) {
    const auto has = [&](const OptimizerParamGroup& group) {
      return std::ranges::any_of(group.params(),
                                 [&](const auto& t) { return t.is_same(parameter); });
    };
    const auto& groups = optimizer.param_groups();
    const auto found = std::ranges::find_if(groups, has);
    if (found == groups.end()) refuse("the optimizer does not have all parameters of its stage");
    all.push_back(static_cast<std::size_t>(found - groups.begin()));
  }
  return all;
}

/// One version that forwards and backwards share.
class NewestWeights : public StageWeights {
 public:
  using StageWeights::StageWeights;
  void begin(const pipeline::Task& /*task*/, std::int64_t /*step*/) override {}
  void end(const pipeline::Task& /*task*/, std::int64_t /*step*/) override {}
  int copies() const override { return 1; }
};

class SpikeCompensatedWeights final : public NewestWeights {
 public:
  SpikeCompensatedWeights(Tensors parameters, int delay, torch::optim::Optimizer& optimizer)
      : NewestWeights(std::move(parameters)), delay_(delay), optimizer_(optimizer) {}

  /// The optimizer steps by a v, end_update() by b g.
  void begin_update() override {
    NewestWeights::begin_update();
    const torch::NoGradGuard no_grad;
    for (OptimizerParamGroup& group : optimizer_.param_groups()) {
      auto& options = static_cast<torch::optim::SGDOptions&>(group.options());
      const SpikeFactors factors = spike_factors(options.momentum(), delay_);
      rates_.push_back(options.lr());
      for (const torch::Tensor& parameter : group.params()) {
        const torch::Tensor& gradient = parameter.grad();
        if (!gradient.defined() || factors.gradient == 0) continue;
        const double decay = options.weight_decay();
        additions_.push_back({parameter, decay == 0 ? gradient : gradient.add(parameter, decay),
                              options.lr() * factors.gradient});
      }
      options.lr(options.lr() * factors.velocity);
    }
  }

  void end_update() override {
    const torch::NoGradGuard no_grad;
    for (auto& [parameter, gradient, rate] : additions_) parameter.add_(gradient, -rate);
    additions_.clear();
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      static_cast<torch::optim::SGDOptions&>(optimizer_.param_groups()[i].options()).lr(rates_[i]);
    }
    rates_.clear();
    NewestWeights::end_update();
  }

 private:
  struct Addition {
    torch::Tensor parameter, gradient;
    double rate = 0;
  };

  int delay_;
  torch::optim::Optimizer& optimizer_;
  std::vector<double> rates_;  ///< By group: its own learning rate.
  std::vector<Addition> additions_;
};

/// Keeps the newest weights, which the optimizer changes, apart from the buffer that computations
/// use. Autograd saves views of this buffer, so begin() can write the weights for a backward to it.
class PredictedWeights final : public StageWeights {
 public:
  PredictedWeights(WeightMethod method, const StagePlace& place, Tensors parameters,
                   torch::optim::Optimizer& optimizer)
      : StageWeights(std::move(parameters)),
        method_(method),
        until_the_end_(method == WeightMethod::spectrain ? place.stage / 2 : 0),
        optimizer_(optimizer),
        groups_(groups_of(parameters_, optimizer)),
        newest_(data()),
        used_(copy_of(newest_)) {
    count_copies();
  }

  void begin(const pipeline::Task& task, std::int64_t /*step*/) override {
    if (task.compute == Compute::forward) {
      predict(pending_ + until_the_end_);
      ++pending_;
    } else {
      predict(until_the_end_);
    }
    point_at(used_);
  }
  void end(const pipeline::Task& /*task*/, std::int64_t /*step*/) override { point_at(newest_); }

  void begin_update() override {
    if (method_ == WeightMethod::lwp_w) keep_before();
    StageWeights::begin_update();
  }
  void end_update() override {
    StageWeights::end_update();
    --pending_;
  }
  /// A checkpoint does not have the weights before the last update.
  void drained() override { before_.clear(); }

  int copies() const override { return before_.empty() ? 2 : 3; }

 private:
  void keep_before() {
    if (before_.empty()) before_ = copy_of(newest_);
    for (std::size_t i = 0; i < newest_.size(); ++i) before_[i].copy_(newest_[i]);
    count_copies();
  }

  void predict(int updates) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < newest_.size(); ++i) predict(i, updates);
  }

  void predict(std::size_t i, int updates) {
    if (updates > 0 && method_ == WeightMethod::lwp_w && !before_.empty()) {
      return extend_update(used_[i], newest_[i], before_[i], updates);
    }
    if (updates > 0 && method_ != WeightMethod::lwp_w) {
      const auto velocity =
          velocity_of(optimizer_, optimizer_.param_groups()[groups_[i]], parameters_[i]);
      if (velocity) return predict_weights(used_[i], newest_[i], *velocity, updates);
    }
    used_[i].copy_(newest_[i]);
  }

  WeightMethod method_;
  int until_the_end_;  ///< Updates between a backward and the same micro-batch's in stage 0.
  torch::optim::Optimizer& optimizer_;
  std::vector<std::size_t> groups_;
  Tensors newest_, used_, before_;
  int pending_ = 0;  ///< Updates of micro-batches that are under way.
};

}  // namespace

std::optional<Velocity> velocity_of(torch::optim::Optimizer& optimizer,
                                    const OptimizerParamGroup& group,
                                    const torch::Tensor& parameter) {
  if (const auto* options = options_as<torch::optim::SGDOptions>(group)) {
    auto* state = find_state<torch::optim::SGDParamState>(optimizer, parameter);
    if (!state || !state->momentum_buffer().defined()) return std::nullopt;
    return Velocity{state->momentum_buffer(), options->lr()};
  }
  if (const auto* options = options_as<torch::optim::AdamOptions>(group)) {
    auto direction = adam_direction<torch::optim::AdamParamState>(optimizer, *options, parameter);
    if (!direction) return std::nullopt;
    return Velocity{*direction, options->lr()};
  }
  const auto* options = options_as<torch::optim::AdamWOptions>(group);
  if (!options) return std::nullopt;
  auto direction = adam_direction<torch::optim::AdamWParamState>(optimizer, *options, parameter);
  if (!direction) return std::nullopt;
  return Velocity{direction->add(parameter.variable_data(), options->weight_decay()),
                  options->lr()};
}

void predict_weights(torch::Tensor& predicted, const torch::Tensor& weights,
                     const Velocity& velocity, int updates) {
  torch::add_out(predicted, weights, velocity.direction, -velocity.rate * updates);
}

void extend_update(torch::Tensor& predicted, const torch::Tensor& weights,
                   const torch::Tensor& before, int updates) {
  torch::sub_out(predicted, weights, before);
  predicted.mul_(updates).add_(weights);
}

SpikeFactors spike_factors(double momentum, int delay) {
  if (delay == 0) return {};
  const double left = std::pow(momentum, delay);
  return {left, (1 - left) / (1 - momentum)};
}

std::unique_ptr<StageWeights> make_single_version(WeightMethod method, const StagePlace& place,
                                                  std::vector<torch::Tensor> parameters,
                                                  torch::optim::Optimizer& optimizer) {
  const auto& groups = optimizer.param_groups();
  const bool predicts = method == WeightMethod::spectrain || method == WeightMethod::lwp_v;
  if (predicts && !std::ranges::all_of(groups, has_velocity)) {
    refuse(
        "weights {} are predicted from the momentum of SGD, Adam or AdamW (without amsgrad), which "
        "the optimizer of stage {} does not have; lwp_w predicts with any optimizer, stash needs "
        "none",
        name_of(method), place.stage);
  }
  if (method == WeightMethod::spike_compensation) {
    if (!std::ranges::all_of(groups, has_plain_momentum)) {
      refuse(
          "weights {} need SGD with momentum, without nesterov and dampening; stage {} has another "
          "optimizer: use stash",
          name_of(method), place.stage);
    }
    return std::make_unique<SpikeCompensatedWeights>(std::move(parameters), place.staleness,
                                                     optimizer);
  }
  if (method == WeightMethod::newest) {
    return std::make_unique<NewestWeights>(std::move(parameters));
  }
  return std::make_unique<PredictedWeights>(method, place, std::move(parameters), optimizer);
}

}  // namespace gradwire
