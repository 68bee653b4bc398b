#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/parallel_mesh.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/pipeline_processes.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct RecomputeCase {
  std::string schedule = "1f1b";
  std::string weights = {};
  int pipeline = 1;
  int data = 1;
  int zero_stage = 0;
  std::int64_t samples = 8;
  bool recompute = true;
  OptimizerFactory optimizer = pipeline_adam;
};

/// Parameters, buffers and optimizer states of replica 0, and the losses.
NamedValues train_recomputing(const Layers& layers, const RecomputeCase& what) {
  TrainedParts trained;
  on_ranks(what.pipeline * what.data, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.data, .pipeline = what.pipeline});
    auto options = pipeline_options(mesh.pipeline(), what.schedule, 4);
    options.data = {.process_group = mesh.data(), .zero_stage = what.zero_stage};
    options.weights = what.weights;
    options.recompute = what.recompute;
    options.optimizer = what.optimizer;
    Pipeline model(layers, options);
    NamedValues values;
    for (int step = 0; step < 6; ++step) {
      const auto batch = pipeline_batch(what.samples, 10 * step + mesh.position().data);
      const LossSum loss = model.train_step(batch.inputs, batch.targets);
      if (loss.count > 0) values[fmt::format("loss {}", step)] = torch::tensor(loss.sum);
    }
    for (const auto& [name, value] : state_values(model)) values[name] = value;
    if (mesh.position().data == 0) trained.take(values);
  });
  return trained.values();
}

void expect_same_with_and_without(const Layers& layers, RecomputeCase what) {
  what.recompute = false;
  const NamedValues without = train_recomputing(layers, what);
  what.recompute = true;
  expect_same(train_recomputing(layers, what), without,
              fmt::format("{}, {} x {}, ZeRO {}", what.schedule, what.pipeline, what.data,
                          what.zero_stage));
}

TEST(PipelineRecompute, HasTheSameBits) {
  for (const std::string schedule : {"gpipe", "1f1b", "zero_bubble", "interleaved"}) {
    for (const int ranks : {1, 3}) {
      expect_same_with_and_without(shared_layers(),
                                   {.schedule = schedule, .pipeline = ranks, .samples = 7});
    }
  }
}

TEST(PipelineRecompute, HasTheSameBitsWithStashedWeights) {
  expect_same_with_and_without(shared_layers(), {.schedule = "pipedream", .pipeline = 3});
  expect_same_with_and_without(shared_layers(), {.schedule = "2bw", .pipeline = 3});
}

TEST(PipelineRecompute, HasTheSameBitsInReplicasAndWithZero) {
  for (const int zero_stage : {0, 1, 2, 3}) {
    expect_same_with_and_without(
        shared_layers(), {.schedule = "1f1b", .pipeline = 2, .data = 2, .zero_stage = zero_stage});
  }
}

TEST(PipelineRecompute, RepeatsDropout) {
  const NamedValues without = train_in_processes(1, "1f1b");
  expect_same(train_in_processes(1, "1f1b", {"recompute"}), without, "one stage");
  expect_same(train_in_processes(3, "zero_bubble", {"recompute"}), without, "three");
}

/// An evaluation finds backwards pending, whose forwards were in training mode.
TEST(PipelineRecompute, RepeatsDropoutBeforeAnEvaluation) {
  expect_same(train_in_processes(3, "pipedream", {"evaluated", "recompute"}),
              train_in_processes(3, "pipedream", {"evaluated"}), "three stages");
}

TEST(PipelineRecompute, CountsStatisticsOfBatchNormOnce) {
  Layers layers;
  layers.add("sine", [] {
    return torch::nn::Functional([](const torch::Tensor& x) { return torch::sin(x); });
  });
  layers.add("norm", [] { return torch::nn::BatchNorm1d(5); });
  layers.add("tanh", [] { return torch::nn::Tanh(); });
  const NamedValues values = train_recomputing(layers, {.pipeline = 2});
  EXPECT_TRUE(values.contains("norm.running_mean"));
  EXPECT_EQ(values.at("norm.num_batches_tracked").item<std::int64_t>(), 6 * 4);
  expect_same_with_and_without(layers, {.pipeline = 2});
}

constexpr std::int64_t kTanhWidth = 64;
constexpr std::int64_t kPartSamples = 32;  // Samples of a micro-batch.
constexpr std::int64_t kPartsKept = 8;
constexpr std::int64_t kTanhs = 16;
constexpr std::int64_t kActivation = kPartSamples * kTanhWidth * 4;  // Bytes.

/// The most bytes that a step of one stage allocates, in which all forwards come before all
/// backwards.
std::int64_t max_allocated(bool recompute) {
  std::int64_t peak = 0;
  on_ranks(1, [&](const ProcessGroup& group) {
    Layers layers;
    layers.add("input", [] { return torch::nn::Linear(kTanhWidth, kTanhWidth); });
    for (std::int64_t i = 0; i < kTanhs; ++i) {
      layers.add(fmt::format("tanh{}", i), [] { return torch::nn::Tanh(); });
    }
    auto options = pipeline_options(group, "gpipe", kPartsKept);
    options.loss = squared_error_sum();
    options.recompute = recompute;
    Pipeline model(layers, options);
    const auto batch = torch::ones({kPartSamples * kPartsKept, kTanhWidth});
    model.train_step(batch, batch);
    const SteadyClock clock;
    const MemoryTracker tracker(clock);
    model.train_step(batch, batch);
    peak = tracker.ledger().peak().bytes;
  });
  return peak;
}

TEST(PipelineRecompute, KeepsOnlyInputs) {
  EXPECT_GE(max_allocated(false), kPartsKept * kTanhs * kActivation);
  EXPECT_LE(max_allocated(true), 2 * kTanhs * kActivation) << "one micro-batch at a time";
}

std::string refusal_of(const Layers& layers, const RecomputeCase& what) {
  try {
    train_recomputing(layers, what);
  } catch (const Exception& e) {
    return e.what();
  }
  return "";
}

TEST(PipelineRecompute, NamesWhatItCannotRepeat) {
  EXPECT_THAT(refusal_of(shared_layers(), {.schedule = "pipedream", .weights = "newest"}),
              HasSubstr("use stash or 2bw"));
  Layers in_place;
  in_place.add("linear", [] { return torch::nn::Linear(5, 3); });
  in_place.add("relu", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
  EXPECT_THAT(refusal_of(in_place, {.pipeline = 2}),
              HasSubstr("the first layer of stage 1 changes its input in place"));
}

using CheckpointedLinear = CheckpointedImpl<torch::nn::LinearImpl>;

/// Four linear layers of fixed values, two of which may be checkpointed.
Layers linear_layers(bool checkpoints) {
  Layers layers;
  for (int i = 0; i < 4; ++i) {
    layers.add_layer(fmt::format("linear{}", i), [i, checkpoints] {
      const auto fill = [i](const torch::nn::LinearImpl& linear) {
        const torch::NoGradGuard no_grad;
        linear.weight.copy_(torch::sin(torch::arange(25) * 1.3 + i).view({5, 5}));
        linear.bias.zero_();
      };
      if (checkpoints && i % 2 == 1) {
        const auto linear = std::make_shared<CheckpointedLinear>(5, 5);
        fill(*linear);
        return torch::nn::AnyModule(linear);
      }
      const torch::nn::Linear linear(5, 5);
      fill(*linear);
      return torch::nn::AnyModule(linear);
    });
  }
  return layers;
}

TEST(PipelineCheckpoints, HaveTheSameBitsIfBackwardsHaveTheWeightsOfTheirForwards) {
  for (const std::string schedule : {"1f1b", "zero_bubble", "zero_bubble_v", "pipedream", "2bw"}) {
    const RecomputeCase what{.schedule = schedule, .pipeline = 2, .recompute = false};
    expect_same(train_recomputing(linear_layers(true), what),
                train_recomputing(linear_layers(false), what), schedule);
  }
  const auto momentum = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(0.01).momentum(0.9));
  };
  for (const std::string weights :
       {"newest", "spectrain", "lwp_v", "lwp_w", "spike_compensation"}) {
    EXPECT_THAT(refusal_of(linear_layers(true), {.schedule = "pipedream",
                                                 .weights = weights,
                                                 .pipeline = 2,
                                                 .recompute = false,
                                                 .optimizer = momentum}),
                AllOf(HasSubstr("has an activation checkpoint"),
                      HasSubstr("weights " + weights + " use others: use stash or 2bw")));
  }
}

}  // namespace
}  // namespace gradwire::test
