#include "gradwire/train/pipeline/split_backward.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/train/named_tensor.h"
#include "gradwire/train/pipeline/layers.h"

namespace gradwire::test {
namespace {

struct Gradients {
  torch::Tensor input;
  std::vector<torch::Tensor> parameters;
};

using Net = std::function<torch::Tensor(const torch::Tensor&)>;

/// Gradients after two micro-batches, in one part or in two.
Gradients gradients(const torch::nn::Module& module, const Net& net, const torch::Tensor& example,
                    bool split, bool expect_deferred) {
  for (const auto& parameter : module.parameters()) parameter.mutable_grad().reset();
  Gradients result;
  for (int i = 0; i < 2; ++i) {
    const auto input = (example + i).detach().requires_grad_();
    const auto output = net(input);
    const auto gradient = torch::cos(output.detach());
    SplitBackward backward({output}, {input});
    result.input = (split ? backward.inputs({gradient}) : backward.all({gradient})).front();
    if (split && i == 0) {
      const bool none = std::ranges::none_of(module.parameters(),
                                             [](const auto& p) { return p.grad().defined(); });
      EXPECT_EQ(none, expect_deferred);
    }
    if (split) backward.weights();
  }
  for (const auto& parameter : module.parameters()) result.parameters.push_back(parameter.grad());
  return result;
}

void expect_equal_parts(const torch::nn::Module& module, const Net& net,
                        const torch::Tensor& example, bool deferred = true) {
  const Gradients whole = gradients(module, net, example, false, deferred);
  std::vector<torch::Tensor> kept;
  for (const auto& gradient : whole.parameters) kept.push_back(gradient.clone());
  const Gradients parts = gradients(module, net, example, true, deferred);
  EXPECT_TRUE(torch::equal(whole.input, parts.input));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(torch::equal(kept[i], parts.parameters[i])) << i;
  }
}

TEST(SplitBackward, HasTheBitsOfOneBackward) {
  torch::manual_seed(1);
  torch::nn::Sequential dense(torch::nn::Linear(6, 9), torch::nn::GELU(),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({9})),
                              torch::nn::Linear(9, 4));
  expect_equal_parts(
      *dense, [&](const auto& x) { return dense->forward(x); }, torch::randn({5, 6}));
  torch::nn::Sequential convolutions(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).padding(1)), torch::nn::BatchNorm2d(3),
      torch::nn::ReLU(), torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 2, 3).stride(2)));
  expect_equal_parts(
      *convolutions, [&](const auto& x) { return convolutions->forward(x); },
      torch::randn({2, 2, 8, 8}));
}

/// Group norm's node has outputs of which nothing uses the gradients.
TEST(SplitBackward, ANodeMayReceiveNoGradientOfSomeOutputs) {
  torch::manual_seed(2);
  torch::nn::Sequential net(torch::nn::Conv2d(2, 4, 1), torch::nn::GroupNorm(2, 4),
                            torch::nn::Conv2d(4, 2, 1));
  expect_equal_parts(
      *net, [&](const auto& x) { return net->forward(x); }, torch::randn({3, 2, 4, 4}));
}

TEST(SplitBackward, FollowsResidualsAndSkipsUnusedParameters) {
  torch::manual_seed(2);
  torch::nn::Linear first(4, 4);
  torch::nn::Linear second(4, 4);
  const auto residual = [&](const torch::Tensor& x) {
    const auto sum = x + torch::tanh(first(x));
    return sum * second(sum);
  };
  const torch::nn::Sequential used(first, second);
  const auto example = torch::randn({3, 4});
  expect_equal_parts(*used, residual, example);
  torch::nn::Linear unused(4, 4);
  const torch::nn::Sequential all(first, second, unused);
  EXPECT_TRUE(gradients(*all, residual, example, true, true).input.defined());
  EXPECT_FALSE(unused->weight.grad().defined());
}

TEST(SplitBackward, HasSeveralInputsAndOutputs) {
  torch::manual_seed(6);
  torch::nn::Linear first(4, 4), second(4, 4);
  const torch::nn::Sequential all(first, second);
  const auto run = [&](bool split) {
    for (const auto& parameter : all->parameters()) parameter.mutable_grad().reset();
    const auto a = torch::linspace(-1, 1, 12).view({3, 4}).requires_grad_();
    const auto b = torch::linspace(0, 2, 12).view({3, 4}).requires_grad_();
    const auto middle = torch::tanh(first(a));
    const auto output = second(middle * b);
    SplitBackward backward({output, middle}, {a, b});
    const std::vector<torch::Tensor> gradients{torch::cos(output.detach()),
                                               torch::sin(middle.detach())};
    auto results = split ? backward.inputs(gradients) : backward.all(gradients);
    if (split) {
      EXPECT_FALSE(first->weight.grad().defined());
      backward.weights();
    }
    for (const auto& parameter : all->parameters()) results.push_back(parameter.grad().clone());
    return results;
  };
  const auto whole = run(false), parts = run(true);
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(torch::equal(whole[i], parts[i])) << i;
  }
}

TEST(SplitBackward, ComputesASharedParameterAtOnce) {
  torch::manual_seed(3);
  torch::nn::Linear shared(4, 4);
  expect_equal_parts(
      *shared, [&](const auto& x) { return shared(torch::tanh(shared(x))); }, torch::randn({3, 4}),
      /*deferred=*/false);
}

TEST(SplitBackward, TheFirstStageHasNoGradientOfItsInput) {
  torch::manual_seed(4);
  torch::nn::Linear layer(4, 2);
  const auto input = torch::randn({3, 4});
  SplitBackward backward({layer(input)}, {});
  EXPECT_TRUE(backward.inputs({torch::ones({3, 2})}).empty());
  EXPECT_FALSE(layer->weight.grad().defined());
  backward.weights();
  EXPECT_TRUE(torch::equal(layer->bias.grad(), torch::full({2}, 3.0F)));
}

TEST(SplitBackward, AnOutputThatNeedsNoGradientHasNone) {
  const auto input = torch::ones({2}).requires_grad_();
  SplitBackward backward({torch::ones({2})}, {input});
  EXPECT_FALSE(backward.all({torch::ones({2})}).front().defined());
  SplitBackward split({torch::ones({2})}, {input});
  EXPECT_FALSE(split.inputs({torch::ones({2})}).front().defined());
  split.weights();
}

/// The least largest stage over all cuts.
double best_of_all(const std::vector<double>& weights, int stages, std::size_t begin = 0) {
  double sum = 0;
  if (stages == 1) {
    for (std::size_t i = begin; i < weights.size(); ++i) sum += weights[i];
    return sum;
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t end = begin + 1; end + static_cast<std::size_t>(stages) <= weights.size() + 1;
       ++end) {
    sum += weights[end - 1];
    best = std::min(best, std::max(sum, best_of_all(weights, stages - 1, end)));
  }
  return best;
}

TEST(BalancedCut, IsTheBestOfAllCuts) {
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> weights(1 + random.below(9));
    for (double& weight : weights) weight = static_cast<double>(random.below(20));
    const int stages = 1 + static_cast<int>(random.below(weights.size()));
    const auto cut = balanced_cut(weights, stages);
    ASSERT_EQ(cut.size(), static_cast<std::size_t>(stages));
    double largest = 0;
    std::size_t layer = 0;
    for (const std::size_t count : cut) {
      EXPECT_GE(count, 1U);
      double sum = 0;
      for (std::size_t k = 0; k < count; ++k) sum += weights[layer++];
      largest = std::max(largest, sum);
    }
    EXPECT_EQ(layer, weights.size());
    EXPECT_EQ(largest, best_of_all(weights, stages));
  }
  EXPECT_THROW(balanced_cut({1, 2}, 3), Exception);
}

}  // namespace
}  // namespace gradwire::test
