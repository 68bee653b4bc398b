#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <torch/torch.h>

#include "gradwire/host/training_host.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/zero/zero.h"

namespace gradwire::test {

struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(const torch::Tensor& shared) {
    weight = register_parameter("weight", shared);
    bias = register_parameter("bias", torch::zeros({shared.size(0)}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight, bias); }
  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(Tied);

/// In float32, with the difficult cases of sharding: blocks, parameters in no block, one that two
/// blocks share, frozen ones, a block that forward never uses, one that it uses twice, and numbers
/// of elements that no number of ranks divides.
struct ZeroNetImpl : torch::nn::Module {
  ZeroNetImpl() {
    first = register_module("first", Block<torch::nn::Linear>(7, 19));
    norm = register_module("norm", Block<torch::nn::LayerNorm>(
                                       torch::nn::LayerNormOptions(std::vector<std::int64_t>{19})));
    twice = register_module("twice", Block<torch::nn::Linear>(19, 19));
    tied = register_module("tied", Block<Tied>(twice->weight));
    never = register_module("never", Block<torch::nn::Linear>(19, 3));
    scale = register_parameter("scale", torch::ones({19}));
    frozen = register_parameter("frozen", torch::full({19}, 0.5), false);
    head = register_module("head", torch::nn::Linear(19, 5));
  }

  torch::Tensor forward(const torch::Tensor& inputs) {
    auto x = torch::tanh(first(inputs));
    x = norm(x) * scale + frozen;
    x = torch::tanh(twice(x));
    x = torch::tanh(twice(x));
    x = torch::tanh(tied(x));
    return head(x);
  }

  Block<torch::nn::Linear> first{nullptr};
  Block<torch::nn::LayerNorm> norm{nullptr};
  Block<torch::nn::Linear> twice{nullptr};
  Block<Tied> tied{nullptr};
  Block<torch::nn::Linear> never{nullptr};
  torch::Tensor scale;
  torch::Tensor frozen;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(ZeroNet);

using Values = std::map<std::string, torch::Tensor>;

inline Values values_of(const torch::nn::Module& module) {
  Values values;
  for (const auto& item : module.named_parameters()) {
    values[item.key()] = item.value().detach().clone();
  }
  return values;
}

/// Returns the maximum absolute difference over all parameters.
inline double difference(const Values& a, const Values& b) {
  double largest = a.size() == b.size() ? 0 : 1e30;
  for (const auto& [name, tensor] : a) {
    largest = std::max(largest, (tensor - b.at(name)).abs().max().item<double>());
  }
  return largest;
}

inline void initialise(torch::nn::Module& module, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(seed);
  for (auto& parameter : module.parameters()) {
    if (parameter.requires_grad()) parameter.normal_(0, 0.3, generator);
  }
}

struct Task {
  torch::Tensor inputs;
  torch::Tensor targets;
};

/// Returns this rank's part of a step's batch of 16.
inline Task task_of(int step, int rank, int ranks) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step) + 5);
  const auto inputs = torch::randn({16, 7}, generator);
  const auto targets = torch::randint(5, {16}, generator, torch::kInt64);
  const auto own = 16 / ranks;
  return {inputs.narrow(0, rank * own, own), targets.narrow(0, rank * own, own)};
}

/// Runs `steps` steps of `parts` accumulated parts each, in the model's type and on its device.
template <class Model>
void train_on_tasks(
    Model& model, int steps, int parts, const std::function<void()>& step,
    const std::function<void()>& before_last_backward = [] {}) {
  const auto like = model.module()->frozen.options().requires_grad(false);
  for (int i = 0; i < steps; ++i) {
    const auto [inputs, targets] = task_of(i, model.rank(), model.world_size());
    const auto size = inputs.size(0) / parts;
    for (int part = 0; part < parts; ++part) {
      std::optional<NoSync> alone;
      if (part + 1 < parts) alone.emplace(model.host());
      const auto output = model(inputs.narrow(0, part * size, size).to(like));
      const auto loss = torch::cross_entropy_loss(
          output.to(torch::kFloat32), targets.narrow(0, part * size, size).to(like.device()));
      if (part + 1 == parts) before_last_backward();
      (loss / parts).backward();
    }
    step();
  }
}

}  // namespace gradwire::test
