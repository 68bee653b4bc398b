#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/mirror_group.h"
#include "tests/train/proof_model.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct OverlapProof : ::testing::TestWithParam<std::tuple<Rule, int>> {
  /// Returns the parameters of each rank, over real communicators.
  std::vector<Parameters> train(const ProofOptions& options) {
    const auto [rule, ranks] = GetParam();
    std::vector<Parameters> together(static_cast<std::size_t>(ranks));
    run_on_loopback(ranks, [&, rule = rule](const auto& group) {
      together[static_cast<std::size_t>(group->getRank())] =
          train_proof_net(group, rule, 20, options);
    });
    return together;
  }

  void expect_same(const std::vector<Parameters>& all, const Parameters& expected) {
    for (const auto& parameters : all) EXPECT_EQ(test::largest_difference(parameters, expected), 0);
  }
};

constexpr ProofOptions kWays[] = {
    {.optimizer_per_bucket = true, .overlap = step::Overlap::none},
    {.optimizer_per_bucket = true, .overlap = step::Overlap::backward},
    {.optimizer_per_bucket = true, .overlap = step::Overlap::full},
    {.optimizer_per_bucket = true, .overlap = step::Overlap::full, .forward_awaits = true},
};

TEST_P(OverlapProof, ParametersAreTheSameBitsWhateverOverlaps) {
  const auto expected = train({.overlap = step::Overlap::none})[0];
  for (const auto& way : kWays) expect_same(train(way), expected);
}

TEST_P(OverlapProof, AlsoWithAccumulation) {
  auto way = kWays[0];
  way.accumulation_steps = 2;
  const auto expected = train(way)[0];
  for (way = kWays[2]; !way.forward_awaits; way.forward_awaits = true) {
    way.accumulation_steps = 2;
    expect_same(train(way), expected);
  }
  Parameters alone;
  run_on_threads(
      1, [&](const auto& group) { alone = train_proof_net(group, std::get<0>(GetParam()), 20); });
  EXPECT_LT(test::largest_difference(alone, expected), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(OverLoopback, OverlapProof,
                         ::testing::Combine(::testing::Values(Rule::sgd_with_momentum, Rule::adam),
                                            ::testing::Values(2, 4)));

std::unique_ptr<torch::optim::Optimizer> plain_sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(1));
}

/// Returns its input, after calling the test's function.
struct SpyImpl : torch::nn::Module {
  explicit SpyImpl(std::function<void()> look) : look_(std::move(look)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    look_();
    return x;
  }
  std::function<void()> look_;
};
TORCH_MODULE(Spy);

DataParallelOptions full_overlap(const ProcessGroup& group) {
  return {.process_group = group,
          .bucket_cap_mb = 1e-6,  // A bucket for each parameter.
          .optimizer = plain_sgd,
          .overlap = step::Overlap::full};
}

TEST(FullOverlap, EachChildWaitsForItsOwnParametersAlone) {
  const auto mirror = std::make_shared<Mirror>();
  torch::nn::Linear first(2, 2);
  torch::nn::Linear second(2, 2);
  int looked = 0;
  const auto first_before = first->weight.detach().clone();
  const auto second_before = second->weight.detach().clone();
  const auto look = [&] {
    if (looked++ == 0) return;  // In the first step nothing is in flight.
    EXPECT_FALSE(first->weight.equal(first_before)) << "it was about to be used";
    EXPECT_TRUE(second->weight.equal(second_before)) << "its gradient has not come";
    mirror->held.clear();
  };
  DataParallel model(torch::nn::Sequential(first, Spy(look), second),
                     full_overlap(mirror_group(mirror)));
  mirror->held = {0, 1};  // Backward launches the buckets of `second` first.
  model(torch::ones({1, 2})).sum().backward();
  model.step();
  EXPECT_EQ(mirror->launched, 4);
  EXPECT_TRUE(first->weight.equal(first_before)) << "nobody needs it yet";
  model(torch::ones({1, 2}));
  EXPECT_EQ(looked, 2);
  EXPECT_FALSE(second->weight.equal(second_before));
}

TEST(FullOverlap, AModuleThatSaysNothingWaitsForTheWholeStep) {
  const auto mirror = std::make_shared<Mirror>();
  DataParallel model(torch::nn::Linear(2, 2), full_overlap(mirror_group(mirror)));
  mirror->held = {0};
  model(torch::ones({1, 2})).sum().backward();
  model.step();
  EXPECT_THROW(model(torch::ones({1, 2})), std::runtime_error);
  mirror->held.clear();
}

TEST(FullOverlap, ReadingTheModelFinishesTheStep) {
  const auto mirror = std::make_shared<Mirror>();
  torch::nn::Linear layer(2, 2);
  const auto before = layer->weight.detach().clone();
  DataParallel model(torch::nn::Sequential(layer), full_overlap(mirror_group(mirror)));
  model(torch::ones({1, 2})).sum().backward();
  model.step([](auto& optimizer) { optimizer.param_groups()[0].options().set_lr(0.5); });
  EXPECT_TRUE(layer->weight.equal(before));
  EXPECT_TRUE(model->parameters()[0].allclose(before - 0.5));
  EXPECT_FALSE(layer->weight.grad().defined()) << "gradients are cleared";
}

TEST(FullOverlap, AnEvaluationFinishesTheStep) {
  const auto mirror = std::make_shared<Mirror>();
  torch::nn::Linear layer(2, 2);
  const auto before = layer->weight.detach().clone();
  DataParallel model(torch::nn::Sequential(layer), full_overlap(mirror_group(mirror)));
  model(torch::ones({1, 2})).sum().backward();
  model.step();
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(model(torch::zeros({1, 2})).allclose(layer->bias.unsqueeze(0)));
  EXPECT_TRUE(layer->weight.allclose(before - 1));
}

TEST(FullOverlap, TheLastStepIsNotLostWithTheDataParallel) {
  const auto mirror = std::make_shared<Mirror>();
  torch::nn::Linear layer(2, 2);
  const auto before = layer->weight.detach().clone();
  {
    DataParallel model(torch::nn::Sequential(layer), full_overlap(mirror_group(mirror)));
    model(torch::ones({1, 2})).sum().backward();
    model.step();
  }
  EXPECT_TRUE(layer->weight.allclose(before - 1));
}

/// Two layers; forward can skip awaiting the second.
struct ForgetfulImpl : torch::nn::Module {
  ForgetfulImpl() {
    a = register_module("a", torch::nn::Linear(2, 2));
    b = register_module("b", torch::nn::Linear(2, 2));
  }
  torch::Tensor forward(const torch::Tensor& x, bool awaits) {
    await_parameters(*a);
    auto y = a(x);
    if (awaits) await_parameters(*b);
    return b(y);
  }
  torch::nn::Linear a{nullptr};
  torch::nn::Linear b{nullptr};
};
TORCH_MODULE(Forgetful);

TEST(FullOverlap, AForgottenAwaitIsAnErrorThatNamesTheParameter) {
  auto options = full_overlap(mirror_group(std::make_shared<Mirror>()));
  options.forward_awaits = true;
  DataParallel model(Forgetful(), options);
  for (const bool awaits : {true, true, false}) {
    try {
      model(torch::ones({1, 2}), awaits).sum().backward();
      model.step();
      EXPECT_TRUE(awaits) << "stale parameters were used";
    } catch (const Exception& error) {
      EXPECT_FALSE(awaits) << error.what();
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("'b.weight'"), HasSubstr("await_parameters")));
    }
  }
}

/// ForgetfulImpl with declared blocks and without calls of await_parameters().
struct BlocksImpl : torch::nn::Module {
  BlocksImpl() {
    a = register_module("a", Block<torch::nn::Linear>(2, 2));
    b = register_module("b", Block<torch::nn::Linear>(2, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return b(a(x)); }
  Block<torch::nn::Linear> a{nullptr};
  Block<torch::nn::Linear> b{nullptr};
};
TORCH_MODULE(Blocks);

TEST(FullOverlap, BlocksAwaitThemselves) {
  auto options = full_overlap(mirror_group(std::make_shared<Mirror>()));
  options.forward_awaits = true;
  DataParallel model(Blocks(), options);
  for (int step = 0; step < 3; ++step) {
    model(torch::ones({1, 2})).sum().backward();
    model.step();
  }
}

TEST(FullOverlap, RequiresAnOptimizer) {
  auto options = full_overlap(mirror_group(std::make_shared<Mirror>()));
  options.optimizer = nullptr;
  EXPECT_THROW(DataParallel(torch::nn::Linear(1, 1), options), Exception);
  options.overlap = step::Overlap::backward;
  DataParallel model(torch::nn::Linear(1, 1), options);
  EXPECT_THROW(model.step(), Exception);
}

TEST(FullOverlap, AWorldOfOneStepsAtOnce) {
  run_on_threads(1, [](const auto& group) {
    torch::nn::Linear layer(2, 2);
    const auto before = layer->weight.detach().clone();
    DataParallel model(torch::nn::Sequential(layer), full_overlap(group));
    model(torch::ones({1, 2})).sum().backward();
    model.step();
    EXPECT_TRUE(layer->weight.allclose(before - 1));
    EXPECT_FALSE(layer->weight.grad().defined());
  });
}

/// Number of all-reduces launched by the time that the first layer's gradient is computed.
int launched_in_backward(step::Overlap overlap) {
  const auto mirror = std::make_shared<Mirror>();
  auto options = full_overlap(mirror_group(mirror));
  options.overlap = overlap;
  torch::nn::Linear first(2, 2);
  DataParallel model(torch::nn::Sequential(first, torch::nn::Linear(2, 2)), options);
  int launched = -1;
  first->weight.register_hook([&](const torch::Tensor& gradient) {
    launched = mirror->launched;
    return gradient;
  });
  model(torch::ones({1, 2})).sum().backward();
  EXPECT_EQ(mirror->launched, 4);
  return launched;
}

TEST(Overlap, SaysWhenGradientsLeave) {
  EXPECT_EQ(launched_in_backward(step::Overlap::none), 0);
  EXPECT_GE(launched_in_backward(step::Overlap::backward), 2);
  EXPECT_GE(launched_in_backward(step::Overlap::full), 2);
}

}  // namespace
}  // namespace gradwire::test
