#include <gtest/gtest.h>

#include "gradwire/train/zero/zero.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

constexpr int kSmallParts = 32;

/// Two numbers that multiply the input; the second is not always used.
struct TwoNumbersImpl : torch::nn::Module {
  TwoNumbersImpl() {
    always = register_parameter("always", torch::zeros({1}));
    sometimes = register_parameter("sometimes", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& x, bool both) {
    return both ? always * x + sometimes * x : always * x;
  }
  torch::Tensor always;
  torch::Tensor sometimes;
};
TORCH_MODULE(TwoNumbers);

std::unique_ptr<torch::optim::Optimizer> whole_step(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), 1.0);
}

/// One step with gradients of 256, then several of 1, then of 0, where the second number has none.
/// 256 is the first number to which bfloat16 cannot add 1.
void accumulate_large_and_small(Zero<TwoNumbers>& model) {
  const auto pass = [&](double input, bool both) {
    model(torch::full({1}, input, torch::kBFloat16), both).sum().backward();
  };
  {
    const auto alone = model.no_sync();
    pass(256, true);
    for (int i = 0; i < kSmallParts; ++i) pass(1, true);
  }
  pass(0, false);
  model.step();
}

ZeroOptions in_16_bits(const ProcessGroup& group, int stage) {
  return {.process_group = group,
          .stage = stage,
          .optimizer = whole_step,
          .parameters = torch::kBFloat16};
}

struct ZeroAccumulation : ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(ZeroAccumulation, AccumulatesIn32Bits) {
  const auto [stage, ranks] = GetParam();
  run_on_threads(ranks, [stage = stage](const ProcessGroup& group) {
    Zero model(TwoNumbers(), in_16_bits(group, stage));
    for (int step = 1; step <= 2; ++step) {
      accumulate_large_and_small(model);
      model.consolidate();
      EXPECT_EQ(model->always.item<float>(), -step * (256 + kSmallParts));
      EXPECT_EQ(model->sometimes.item<float>(), -step * (256 + kSmallParts));
    }
  });
}

TEST_P(ZeroAccumulation, KeepsTheSumsOf16BitsOnlyWhileItAccumulates) {
  const auto [stage, ranks] = GetParam();
  run_on_threads(ranks, [stage = stage](const ProcessGroup& group) {
    Zero model(TwoNumbers(), in_16_bits(group, stage));
    std::vector<std::size_t> bytes;
    for (int step = 0; step < 3; ++step) {
      accumulate_large_and_small(model);
      model.finish();
      bytes.push_back(model.core().bytes().gradients);
    }
    EXPECT_EQ(bytes, std::vector<std::size_t>(3, stage == 1 ? 4U : 0U));
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroAccumulation,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(1, 2)));

}  // namespace
}  // namespace gradwire::test
