#pragma once

#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/recipe/models.h"

namespace gradwire::test {

/// Three layers over contexts of eight bytes.
recipe::ModelConfig small_gpt(std::int64_t checkpoints, double dropout = 0.2);

/// Deterministic input bytes for small_gpt: samples x context.
torch::Tensor byte_samples(std::int64_t samples, std::int64_t context = 8);

/// Learning rate 0.1, momentum 0.9.
std::unique_ptr<torch::optim::Optimizer> make_sgd(std::vector<torch::Tensor> parameters);

/// Learning rate 0.01.
std::unique_ptr<torch::optim::Optimizer> make_adam(std::vector<torch::Tensor> parameters);

/// Passes its input on; trains a parameter without elements, as of an unused table.
struct EmptyTableImpl : torch::nn::Module {
  EmptyTableImpl() : table(register_parameter("table", torch::zeros({0, 16}))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return x + torch::zeros({x.size(0), 16}).mm(table.t()).sum(1, true);
  }
  torch::Tensor table;
};
TORCH_MODULE(EmptyTable);

/// Expects bitwise equal tensors in the same order.
void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b);

}  // namespace gradwire::test
