#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/train/federated/federation.h"

/// A federation that trains in milliseconds.
namespace gradwire::test {

inline constexpr std::int64_t kFeatures = 12, kClasses = 3;

/// Points around a centre for each class.
inline DataSet points(std::int64_t count) {
  torch::manual_seed(5);
  const torch::Tensor targets = torch::arange(count) % kClasses;
  const torch::Tensor centres = torch::randn({kClasses, kFeatures});
  const torch::Tensor inputs = centres.index_select(0, targets) + torch::randn({count, kFeatures});
  return {.size = count, .batch = [=](const SampledBatch& sampled) -> Batch {
            const torch::Tensor rows = torch::tensor(sampled.samples, torch::kInt64);
            return {inputs.index_select(0, rows), targets.index_select(0, rows), sampled.own};
          }};
}

inline TrainableModule linear() {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 8), torch::nn::Tanh(),
                            torch::nn::Linear(8, kClasses));
  return {net.ptr(), [net](const torch::Tensor& x) mutable { return net->forward(x); },
          [](const torch::Tensor& outputs, const torch::Tensor& targets) {
            return torch::cross_entropy_loss(outputs, targets);
          }};
}

inline OptimizerFactory sgd(double rate, double momentum = 0) {
  return [=](const std::vector<torch::Tensor>& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(rate).momentum(momentum));
  };
}

/// The elements of a federation's model.
inline std::vector<float> values_of(const Federation& federation) {
  std::vector<float> values;
  for (const auto& [name, tensor] : federation.tensors()) {
    const torch::Tensor flat = tensor.contiguous();
    const float* const first = flat.const_data_ptr<float>();
    values.insert(values.end(), first, first + flat.numel());
  }
  return values;
}

/// Client k has 6 (k + 1) samples, all different.
inline HeldOut unequal(int count, bool holds_out = false) {
  HeldOut clients;
  std::int64_t next = 0;
  for (int k = 0; k < count; ++k) {
    std::vector<std::int64_t> train, held_out;
    for (int i = 0; i < 6 * (k + 1); ++i)
      (holds_out && i % 6 == 5 ? held_out : train).push_back(next++);
    clients.train.add(train);
    clients.held_out.add(held_out);
  }
  return clients;
}

}  // namespace gradwire::test
