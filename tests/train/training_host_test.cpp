#include "gradwire/host/training_host.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/host/buckets.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/zero/shards.h"
#include "gradwire/train/zero/zero.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"

/// A TrainingHost without modules or libtorch's optimizers, and steps that are abandoned.
namespace gradwire::test {
namespace {

using testing::HasSubstr;

/// Two layers as tensors; each is a block.
struct TwoLayers {
  TwoLayers() {
    auto generator = at::detail::createCPUGenerator(5);
    first = (torch::randn({6, 11}, generator) * 0.3).requires_grad_();
    second = (torch::randn({11, 3}, generator) * 0.3).requires_grad_();
  }
  std::vector<NamedTensor> parameters() const { return {{"first", first}, {"second", second}}; }

  torch::Tensor first, second;
};

constexpr double kRate = 0.1;

/// Plain gradient descent on whatever the memory holds.
class DescendBuckets final : public UnitOptimizer {
 public:
  explicit DescendBuckets(const Buckets& buckets) : buckets_(buckets) {}
  bool step(std::size_t unit, double factor) override {
    const torch::NoGradGuard no_grad;
    for (auto& [name, tensor] : buckets_.members(unit)) {
      tensor.sub_(tensor.grad(), kRate * factor);
      tensor.mutable_grad().reset();
    }
    return true;
  }

 private:
  const Buckets& buckets_;
};

class DescendShards final : public UnitOptimizer {
 public:
  explicit DescendShards(Shards& shards) : shards_(shards) {}
  bool step(std::size_t unit, double factor) override {
    const torch::NoGradGuard no_grad;
    const auto gradient = shards_.gradients().take(unit);
    if (!gradient.defined()) return false;
    torch::Tensor values = shards_.units()[unit].master();
    values.sub_(gradient, kRate * factor);
    return true;
  }

 private:
  Shards& shards_;
};

/// A model that a host trains; `stage` as in ZeroOptions, 0: replicated.
struct HostedLayers {
  HostedLayers(const ProcessGroup& group, int stage) {
    if (stage == 0) {
      auto buckets =
          std::make_unique<Buckets>(group, "test", layers.parameters(),
                                    BucketsOptions{.limits = step::limits_capped_at(0.0001)});
      optimizer = std::make_unique<DescendBuckets>(*buckets);
      memory = std::move(buckets);
    } else {
      auto shards = std::make_unique<Shards>(group, "test", ShardsOptions{.stage = stage}, 2);
      for (const auto& parameter : layers.parameters()) {
        shards->add(parameter.name, {parameter}, /*is_root=*/false);
      }
      shards->allocate_gradients();
      optimizer = std::make_unique<DescendShards>(*shards);
      memory = std::move(shards);
    }
    host = std::make_unique<TrainingHost>(
        group, *memory, optimizer.get(), std::vector<NamedTensor>(),
        TrainingHostOptions{.who = "test",
                            .policy = {.stage = stage, .overlap = step::Overlap::full},
                            .exchange = {.sharded = stage > 0},
                            .forward_awaits = true});
    for (const auto& [name, tensor] : layers.parameters()) {
      host->add_block({host->unit_of(tensor).value()});
    }
  }

  torch::Tensor loss(const torch::Tensor& inputs) {
    host->before_forward(/*training_mode=*/true);
    host->before_block(0);
    const auto hidden = torch::tanh(inputs.matmul(layers.first));
    host->after_block(0, {hidden});
    host->before_block(1);
    const auto outputs = hidden.matmul(layers.second);
    host->after_block(1, {outputs});
    const auto loss = (outputs - 1).square().mean();
    host->after_forward({loss});
    return loss;
  }

  TwoLayers layers;
  std::unique_ptr<UnitMemory> memory;
  std::unique_ptr<UnitOptimizer> optimizer;
  std::unique_ptr<TrainingHost> host;
};

torch::Tensor inputs_of(int rank, int step) {
  return torch::randn(
      {4, 6}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(1 + rank + 2 * step)));
}

/// The same training by one process on the inputs of both ranks.
std::vector<torch::Tensor> trained_alone(int steps) {
  TwoLayers layers;
  for (int step = 0; step < steps; ++step) {
    const auto inputs = torch::cat({inputs_of(0, step), inputs_of(1, step)});
    const auto outputs = torch::tanh(inputs.matmul(layers.first)).matmul(layers.second);
    (outputs - 1).square().mean().backward();
    const torch::NoGradGuard no_grad;
    for (auto& [name, tensor] : layers.parameters()) {
      tensor.sub_(tensor.grad(), kRate);
      tensor.mutable_grad().reset();
    }
  }
  return {layers.first.detach(), layers.second.detach()};
}

class HostOfTensors : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, HostOfTensors, testing::Values(0, 1, 2, 3));

TEST_P(HostOfTensors, TrainsAsOneProcessDoes) {
  const auto expected = trained_alone(5);
  run_on_threads(2, [&](const auto& group) {
    HostedLayers model(group, GetParam());
    for (int step = 0; step < 5; ++step) {
      model.loss(inputs_of(group->getRank(), step)).backward();
      model.host->begin_step();
    }
    model.host->consolidate();
    EXPECT_TRUE(torch::allclose(model.layers.first, expected[0], 1e-5, 1e-6));
    EXPECT_TRUE(torch::allclose(model.layers.second, expected[1], 1e-5, 1e-6));
  });
}

TEST_P(HostOfTensors, ScalesItsGradients) {
  run_on_threads(2, [&](const auto& group) {
    std::vector<torch::Tensor> seconds;
    for (const double factor : {1.0, 0.5}) {
      HostedLayers model(group, GetParam());
      const auto before = model.layers.second.numel() > 0 ? TwoLayers().second : torch::Tensor();
      model.loss(inputs_of(group->getRank(), 0)).backward();
      model.host->begin_step(factor);
      model.host->consolidate();
      seconds.push_back((model.layers.second.detach() - before) / factor);
    }
    EXPECT_TRUE(torch::allclose(seconds[0], seconds[1], 1e-4, 1e-6));
  });
}

/// A net with buffers, and with a dropout if `draws`.
torch::nn::Sequential net_with_buffers(bool draws) {
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::BatchNorm1d(32),
                            torch::nn::Dropout(draws ? 0.3 : 0.0), torch::nn::Linear(32, 8),
                            torch::nn::Tanh(), torch::nn::Linear(8, 1));
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(7);
  for (auto& parameter : net->parameters()) parameter.normal_(0, 0.3, generator);
  return net;
}

std::unique_ptr<torch::optim::Optimizer> adam(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                              torch::optim::AdamOptions(0.01));
}

/// Takes `steps` steps of two backwards each, and before some of them others that it abandons.
/// Returns all parameters and buffers.
template <class Model>
std::vector<torch::Tensor> train(Model& model, int steps, bool abandons) {
  const auto run = [&](int step) {
    for (int part = 0; part < 2; ++part) {
      std::optional<NoSync> alone;
      if (part == 0) alone.emplace(model.host());
      const auto inputs = torch::randn(
          {8, 8}, at::detail::createCPUGenerator(
                      static_cast<std::uint64_t>(100 * step + 10 * part + model.rank())));
      torch::mse_loss(model(inputs), inputs.sum(1, true) * 0.2).backward();
    }
  };
  Random random(11);
  for (int step = 0; step < steps; ++step) {
    while (abandons && random.below(2) == 0) {
      run(1000 + step);
      model.abandon_step();
    }
    run(step);
    model.step();
  }
  std::vector<torch::Tensor> state;
  if constexpr (requires { model.consolidate(); }) model.consolidate();
  for (const auto& tensor : model->parameters()) state.push_back(tensor.detach().clone());
  for (const auto& tensor : model->buffers()) state.push_back(tensor.detach().clone());
  return state;
}

/// Stage, codec, overlap.
using Abandoning = std::tuple<int, std::string, step::Overlap>;

std::vector<torch::Tensor> train(const ProcessGroup& group, const Abandoning& how, bool draws,
                                 bool abandons) {
  const auto& [stage, codec, overlap] = how;
  if (stage == 0) {
    DataParallel model(net_with_buffers(draws), {.process_group = group,
                                                 .bucket_cap_mb = 0.0005,
                                                 .optimizer = adam,
                                                 .overlap = overlap,
                                                 .codec = codec,
                                                 .codec_min_elements = 16,
                                                 .can_abandon = true});
    return train(model, 8, abandons);
  }
  Zero model(net_with_buffers(draws), {.process_group = group,
                                       .stage = stage,
                                       .optimizer = adam,
                                       .codec = codec,
                                       .codec_min_elements = 16,
                                       .can_abandon = true,
                                       .bucket_cap_mb = 0.0005,
                                       .overlap = overlap,
                                       .min_block_elements = 1});
  return train(model, 8, abandons);
}

void expect_same_bits(const std::vector<torch::Tensor>& some,
                      const std::vector<torch::Tensor>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(some[i].equal(others[i])) << i;
}

class AbandonedSteps : public testing::TestWithParam<Abandoning> {};
INSTANTIATE_TEST_SUITE_P(
    Stages, AbandonedSteps,
    testing::Combine(testing::Values(0, 1, 2, 3), testing::Values("none", "top_k:0.1", "one_bit"),
                     testing::Values(step::Overlap::none, step::Overlap::full)));

TEST_P(AbandonedSteps, LeaveNoTrace) {
  run_on_loopback(2, [&](const auto& group) {
    expect_same_bits(train(group, GetParam(), /*draws=*/false, /*abandons=*/true),
                     train(group, GetParam(), /*draws=*/false, /*abandons=*/false));
  });
}

TEST_P(AbandonedSteps, PutTheRandomStateBack) {
  const auto group = group_of_one();
  std::vector<std::vector<torch::Tensor>> states;
  for (const bool abandons : {true, false}) {
    torch::manual_seed(3);
    states.push_back(train(group, GetParam(), /*draws=*/true, abandons));
  }
  expect_same_bits(states[0], states[1]);
}

/// Runs a forward and a backward that change the buffers.
template <class Model>
void run_backward(Model& model) {
  model(torch::arange(64.0).view({8, 8})).sum().backward();
}

template <class Model>
std::vector<torch::Tensor> buffers_of(Model& model) {
  std::vector<torch::Tensor> copies;
  for (const auto& buffer : model->buffers()) copies.push_back(buffer.clone());
  return copies;
}

TEST(AbandonedStep, GoesBackToAStepThatWasTakenInBackward) {
  Zero model(net_with_buffers(false),
             {.process_group = group_of_one(), .stage = 2, .optimizer = adam, .can_abandon = true});
  model.step_in_backward();
  run_backward(model);
  const auto after_step = buffers_of(model);
  run_backward(model);
  model.abandon_step();
  expect_same_bits(buffers_of(model), after_step);
}

TEST(AbandonedStep, GoesBackToWhatWasLoaded) {
  DataParallel model(net_with_buffers(false),
                     {.process_group = group_of_one(), .optimizer = adam, .can_abandon = true});
  ReplicatedModel state(*model.module(), model.core());
  {
    const torch::NoGradGuard no_grad;
    for (const auto& piece : state.pieces(false)) {
      if (piece.name == "1.running_mean") piece.data.fill_(3);
    }
  }
  state.loaded();
  const auto loaded = buffers_of(model);
  run_backward(model);
  model.abandon_step();
  expect_same_bits(buffers_of(model), loaded);
}

TEST(AbandonedStep, IsRefusedUnlessAllowed) {
  const auto group = group_of_one();
  DataParallel model(net_with_buffers(false), {.process_group = group, .optimizer = adam});
  try {
    model.abandon_step();
    FAIL();
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("set can_abandon"));
  }
  EXPECT_THROW(DataParallel(net_with_buffers(false), {.process_group = group, .can_abandon = true}),
               Exception);
}

}  // namespace
}  // namespace gradwire::test
