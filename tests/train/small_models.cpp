#include "tests/train/small_models.h"

#include <gtest/gtest.h>

namespace gradwire::test {

recipe::ModelConfig small_gpt(std::int64_t checkpoints, double dropout) {
  return {.name = "gpt",
          .dropout = dropout,
          .width = 16,
          .layers = 3,
          .heads = 2,
          .context = 8,
          .checkpoints = checkpoints};
}

torch::Tensor byte_samples(std::int64_t samples, std::int64_t context) {
  return (torch::arange(samples * context) * 37 % 256).view({samples, context});
}

std::unique_ptr<torch::optim::Optimizer> make_sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

std::unique_ptr<torch::optim::Optimizer> make_adam(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), 0.01);
}

void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "parameter " << i;
}

}  // namespace gradwire::test
