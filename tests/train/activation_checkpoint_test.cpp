#include "gradwire/train/activation/activation_checkpoint.h"

#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/recipe/models.h"
#include "gradwire/train/optim/amp.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/small_models.h"

namespace gradwire::test {
namespace {

recipe::ModelConfig small_resnet(std::int64_t checkpoints) {
  return {.name = "resnet", .channels = 4, .groups = 2, .checkpoints = checkpoints};
}

/// Results of a training step.
struct Outcome {
  torch::Tensor loss;
  std::vector<torch::Tensor> gradients;
  torch::Tensor next_random;
};

Outcome step(const recipe::ModelConfig& config, Precision precision = Precision::fp32) {
  torch::manual_seed(11);
  auto model = recipe::make_model(config);
  const auto inputs = byte_samples(4);
  Outcome outcome;
  {
    const Autocast autocast(precision);
    outcome.loss = torch::nll_loss_nd(model->forward(inputs), inputs.roll(1, 1));
  }
  outcome.loss.backward();
  for (const auto& parameter : model->parameters()) outcome.gradients.push_back(parameter.grad());
  outcome.next_random = torch::randn({3});
  return outcome;
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(a.loss.equal(b.loss));
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(a.gradients[i].equal(b.gradients[i])) << "parameter " << i;
  }
  EXPECT_TRUE(a.next_random.equal(b.next_random)) << "later random numbers are others";
}

TEST(ActivationCheckpoint, GivesTheSameBitsWithDropout) {
  const auto without = step(small_gpt(0));
  for (const int checkpoints : {1, 3}) expect_same_bits(without, step(small_gpt(checkpoints)));
}

TEST(ActivationCheckpoint, GivesTheSameBitsUnderAutocast) {
  const auto without = step(small_gpt(0), Precision::bf16);
  expect_same_bits(without, step(small_gpt(3), Precision::bf16));
  EXPECT_FALSE(without.loss.equal(step(small_gpt(0)).loss)) << "autocast did nothing";
}

TEST(ActivationCheckpoint, KeepsTheNamesOfParameters) {
  const auto names = [](const recipe::ModelConfig& config) {
    auto model = recipe::make_model(config);
    return model->named_parameters().keys();
  };
  EXPECT_EQ(names(small_gpt(0)), names(small_gpt(2)));
  EXPECT_EQ(names(small_resnet(0)), names(small_resnet(4)));
}

TEST(ActivationCheckpoint, TakesAnythingThatCanBeCalled) {
  const auto w = torch::tensor({2.0, 3.0}).requires_grad_();
  const auto a = torch::tensor({5.0, 7.0}).requires_grad_();
  const auto b = torch::tensor({1.0, 4.0});
  int calls = 0;
  const auto product = [&](const torch::Tensor& x, const torch::Tensor& y) {
    ++calls;
    return std::vector<torch::Tensor>{x * x * w, y * w};
  };
  const auto outputs = checkpointed(product, a, b);
  EXPECT_EQ(calls, 1);
  (outputs[0] + outputs[1]).sum().backward();
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(a.grad().equal(torch::tensor({20.0, 42.0}))) << "2 a w";
  EXPECT_TRUE(w.grad().equal(torch::tensor({26.0, 53.0}))) << "a a + b";
  EXPECT_FALSE(b.grad().defined());
}

TEST(ActivationCheckpoint, BackwardMayStartFromSomeOutputs) {
  const auto a = torch::tensor({5.0}).requires_grad_();
  const auto two = [](const torch::Tensor& x) { return std::vector<torch::Tensor>{x * 2, x * x}; };
  checkpointed(two, a)[1].backward();
  EXPECT_EQ(a.grad().item<double>(), 10);
}

TEST(ActivationCheckpoint, Nests) {
  const auto a = torch::tensor({3.0}).requires_grad_();
  int calls = 0;
  const auto inner = [&](const torch::Tensor& x) { return ++calls, x * x; };
  const auto outer = [&](const torch::Tensor& x) { return checkpointed(inner, x) * x; };
  checkpointed(outer, a).backward();
  EXPECT_EQ(a.grad().item<double>(), 27);
  EXPECT_EQ(calls, 3) << "forward, to recompute outside, to recompute inside";
}

TEST(ActivationCheckpoint, JustCallsWithoutGradients) {
  const torch::NoGradGuard no_grad;
  const auto a = torch::tensor({3.0});
  EXPECT_FALSE(checkpointed([](const auto& x) { return x * x; }, a).requires_grad());
}

TEST(ActivationCheckpoint, WithoutPreservingDrawsOtherNumbers) {
  torch::manual_seed(3);
  const auto a = torch::ones({1000}).requires_grad_();
  const auto drop = [](const torch::Tensor& x) { return torch::dropout(x, 0.5, true); };
  const auto kept = checkpointed(drop, a);
  kept.sum().backward();
  EXPECT_TRUE(a.grad().equal(kept)) << "the same elements were dropped";
  a.mutable_grad().reset();
  const auto others = checkpointed_with({.preserve_rng_state = false}, drop, a);
  others.sum().backward();
  EXPECT_FALSE(a.grad().equal(others));
}

TEST(ActivationCheckpoint, FindsOutThatAnInputWasChanged) {
  const auto a = torch::ones({2}).requires_grad_();
  auto x = a * 2;
  const auto y = checkpointed([](const auto& t) { return t * t; }, x);
  x.add_(1);
  EXPECT_THROW(y.sum().backward(), c10::Error);
}

std::int64_t activations_after_forward(const recipe::ModelConfig& config) {
  torch::manual_seed(1);
  auto model = recipe::make_model(config);
  const auto inputs = torch::randn({8, 1, 28, 28});
  const SteadyClock clock;
  MemoryTracker tracker(clock);
  const MemoryScope scope(MemoryCategory::activations);
  const auto output = model->forward(inputs);
  return tracker.ledger().bytes()[static_cast<std::size_t>(MemoryCategory::activations)];
}

TEST(ActivationCheckpoint, KeepsLess) {
  EXPECT_LT(activations_after_forward(small_resnet(4)),
            activations_after_forward(small_resnet(0)) / 2);
}

/// Gradients of a checkpoint whose input is partitioned over `ranks` ranks.
std::vector<torch::Tensor> partitioned(int ranks, const torch::Tensor& input) {
  std::vector<torch::Tensor> result;
  run_on_threads(ranks, [&](const ProcessGroup& group) {
    const auto w = torch::full({5}, 3.0).requires_grad_();
    const auto a = input.detach().clone().requires_grad_();
    const auto function = [w](const torch::Tensor& x) { return (x * x).matmul(w).tanh(); };
    const auto y = checkpointed_with({.partition_group = group}, function, a * 1);
    y.sum().backward();
    if (group->getRank() == ranks - 1) result = {a.grad(), w.grad()};
  });
  return result;
}

TEST(PartitionedCheckpoint, GivesTheSameBits) {
  const auto input = torch::arange(35).to(torch::kFloat32).view({7, 5}) / 40;
  for (const auto& of : {input, input.t().contiguous().t()}) {
    const auto whole = partitioned(1, of);
    for (const int ranks : {2, 3}) expect_equal(whole, partitioned(ranks, of));
  }
}

TEST(PartitionedCheckpoint, EachRankKeepsItsPart) {
  const SteadyClock clock;
  MemoryTracker tracker(clock);
  run_on_threads(4, [&](const ProcessGroup& group) {
    torch::Tensor y;
    {
      const auto a = torch::ones({1}).requires_grad_();
      y = checkpointed_with(
          {.preserve_rng_state = false, .partition_group = group},
          [](const torch::Tensor& x) { return x.sum(); }, a.expand({1000, 100}).contiguous());
    }
    group->barrier()->wait();
    // All four partitions, plus small overhead.
    const auto bytes = total_bytes(tracker.ledger().bytes());
    EXPECT_GE(bytes, 400'000);
    EXPECT_LT(bytes, 410'000);
    group->barrier()->wait();
  });
}

}  // namespace
}  // namespace gradwire::test
