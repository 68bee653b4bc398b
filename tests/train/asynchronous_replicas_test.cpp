// Replicas of asynchronous pipelines, which average the gradients of each update.
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/pipeline/pipeline_stages.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/asynchronous_model.h"
#include "tests/train/pipeline_processes.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(AsynchronousReplicas, HaveTheBitsOfAProcessThatKeepsAllVersions) {
  for (const std::string weights :
       {"stash", "2bw", "spectrain", "lwp_v", "lwp_w", "spike_compensation", "newest"}) {
    for (const int stages : {1, 2, 3}) {
      expect_as_with_all_versions({.weights = weights, .stages = stages, .replicas = 2});
    }
  }
}

TEST(AsynchronousReplicas, HaveThoseBitsWithAdamToo) {
  for (const std::string weights : {"stash", "2bw", "spectrain", "lwp_v", "lwp_w"}) {
    expect_as_with_all_versions(
        {.weights = weights, .stages = 2, .optimizer = small_adam, .replicas = 2});
  }
}

TEST(AsynchronousReplicas, HaveThoseBitsForAnyNumberOfMicroBatches) {
  for (const int micro_batches : {1, 2, 5}) {
    for (const std::string weights : {"stash", "2bw", "spectrain"}) {
      expect_as_with_all_versions(
          {.weights = weights, .stages = 3, .micro_batches = micro_batches, .replicas = 2});
    }
  }
}

/// With 2bw an update belongs to a batch, of any number of micro-batches: the replica whose number
/// changes drains its pipeline, the other does not.
TEST(AsynchronousReplicas, UpdateOnceAStepWithOtherNumbersOfMicroBatches) {
  for (const int stages : {2, 3}) {
    expect_as_with_all_versions({.weights = "2bw", .stages = stages, .replicas = 2, .short_at = 4});
  }
}

/// Three addends have an order, so they are compared with each other alone.
TEST(AsynchronousReplicas, HaveTheSameBits) {
  for (const std::string weights : {"stash", "2bw", "spectrain"}) {
    const auto replicas =
        run_async({.weights = weights, .stages = 2, .steps = 9, .replicas = 3}).parameters;
    expect_same(replicas[1], replicas[0], weights);
    expect_same(replicas[2], replicas[0], weights);
  }
}

/// The mean of two equal gradients has their bits.
void expect_as_one_replica(AsyncCase what,
                           const std::function<void(Pipeline::Options&)>& change = {}) {
  what.alike = true;
  const AsyncOutcome one = run_async(what, change);
  what.replicas = 2;
  const AsyncOutcome two = run_async(what, change);
  for (const NamedValues& parameters : two.parameters) {
    expect_same(parameters, one.parameters.front(), what.weights);
  }
  EXPECT_EQ(two.max_copies, one.max_copies);
}

TEST(AsynchronousReplicas, KeepAsManyCopiesAsOnePipeline) {
  for (const std::string weights : {"stash", "2bw", "spectrain", "lwp_w"}) {
    expect_as_one_replica({.weights = weights, .stages = 3});
  }
}

TEST(AsynchronousReplicas, RecomputeAndEncodeActivations) {
  for (const std::string weights : {"stash", "2bw"}) {
    expect_as_one_replica({.weights = weights, .stages = 3}, [](Pipeline::Options& options) {
      options.recompute = true;
      options.activation_codec = {.forward = "int8", .backward = "bf16"};
    });
  }
}

TEST(AsynchronousReplicas, SetTheLearningRateOfEachUpdate) {
  const auto train = [](const std::string& weights, int replicas) {
    const AsyncCase what{
        .weights = weights, .stages = 2, .steps = 6, .replicas = replicas, .alike = true};
    TrainedParts trained;
    on_async_meshes(what, [&](Pipeline& model, const ParallelMesh&) {
      int updates = 0;
      for (int step = 0; step < what.steps; ++step) {
        const auto batch = what.batch(0, step);
        const auto at_rate = [&updates, step](torch::optim::Optimizer& optimizer) {
          ++updates;
          for (auto& group : optimizer.param_groups()) group.options().set_lr(0.05 / (1 + step));
        };
        model.train_step(batch.inputs, batch.targets, {.before = at_rate});
      }
      model.finish();
      EXPECT_EQ(updates, what.by_step() ? what.steps : what.steps * what.micro_batches);
      trained.take(state_values(model));
    });
    return trained.values();
  };
  for (const std::string weights : {"stash", "2bw", "spectrain"}) {
    expect_same(train(weights, 2), train(weights, 1), weights);
  }
}

/// Layers of which codecs compress the gradients.
Layers wide_layers() {
  Layers layers;
  layers.add("input", [] { return with_fixed_values(torch::nn::Linear(5, 64), 0); });
  layers.add("relu", [] {
    return torch::nn::Functional([](const torch::Tensor& x) { return torch::relu(x); });
  });
  layers.add("hidden", [] { return with_fixed_values(torch::nn::Linear(64, 64), 1); });
  layers.add("tanh", [] {
    return torch::nn::Functional([](const torch::Tensor& x) { return torch::tanh(x); });
  });
  layers.add("output", [] { return with_fixed_values(torch::nn::Linear(64, 3), 2); });
  return layers;
}

/// The parameters of each replica after training on two ranks each, the third layer on the second.
std::vector<NamedValues> train_wide(const std::string& weights, const std::string& codec) {
  const AsyncCase what{.weights = weights, .stages = 2, .replicas = 2};
  std::vector<TrainedParts> trained(2);
  on_async_ranks(4, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = 2, .pipeline = 2});
    Pipeline::Options options = async_options(mesh.pipeline(), what);
    options.data = {.process_group = mesh.data(), .options = {.codec = codec}};
    options.cut = {2, 3};
    Pipeline model(wide_layers(), options);
    const int replica = mesh.position().data;
    for (int step = 0; step < what.steps; ++step) async_step(model, what, replica, step);
    trained[static_cast<std::size_t>(replica)].take(state_values(model));
  });
  return {trained[0].values(), trained[1].values()};
}

TEST(AsynchronousReplicas, EncodeGradients) {
  for (const std::string weights : {"stash", "2bw", "spectrain"}) {
    const auto coded = train_wide(weights, "int8"), exact = train_wide(weights, "none");
    expect_same(coded[1], coded[0], weights);
    const torch::Tensor& actual = coded[0].at("hidden.weight");
    const torch::Tensor& expected = exact[0].at("hidden.weight");
    EXPECT_FALSE(torch::equal(actual, expected)) << weights;
    EXPECT_TRUE(torch::allclose(actual, expected, 0.05, 0.02)) << weights;
  }
}

TEST(AsynchronousReplicas, StagesWithoutParametersPass) {
  const AsyncCase what{.stages = 3, .replicas = 2};
  std::vector<TrainedParts> trained(2);
  on_async_ranks(6, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = 2, .pipeline = 3});
    Pipeline::Options options = async_options(mesh.pipeline(), what);
    options.data = {.process_group = mesh.data()};
    options.cut = {1, 1, 3};
    Pipeline model(wide_layers(), options);
    const int replica = mesh.position().data;
    for (int step = 0; step < 5; ++step) async_step(model, what, replica, step);
    trained[static_cast<std::size_t>(replica)].take(state_values(model));
  });
  expect_same(trained[1].values(), trained[0].values(), "replica 1");
}

/// The statistics are those of each replica's micro-batches.
TEST(AsynchronousReplicas, FinishWithTheBuffersOfTheFirst) {
  const AsyncCase what{.stages = 2, .replicas = 2};
  std::vector<torch::Tensor> before(2), after(2);
  on_async_ranks(4, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = 2, .pipeline = 2});
    Pipeline::Options options = async_options(mesh.pipeline(), what);
    options.data = {.process_group = mesh.data()};
    options.cut = {2, 1};
    Layers layers;
    layers.add("input", [] { return with_fixed_values(torch::nn::Linear(5, 8), 0); });
    layers.add("norm", [] { return torch::nn::BatchNorm1d(8); });
    layers.add("output", [] { return with_fixed_values(torch::nn::Linear(8, 3), 1); });
    Pipeline model(layers, options);
    const auto replica = static_cast<std::size_t>(mesh.position().data);
    // Micro-batches of two samples or more, from which batch norm takes a variance.
    for (int step = 0; step < 3; ++step) {
      const auto batch = pipeline_batch(8, step + 100 * mesh.position().data);
      model.train_step(batch.inputs, batch.targets);
    }
    const auto mean = [&] {
      return all_buffers(*model.stages().front().module).front().tensor.clone();
    };
    if (model.has_first_stage()) before[replica] = mean();
    model.finish();
    if (model.has_first_stage()) after[replica] = mean();
  });
  EXPECT_FALSE(torch::equal(before[0], before[1]));
  EXPECT_TRUE(torch::equal(after[0], before[0]));
  EXPECT_TRUE(torch::equal(after[1], before[0]));
}

/// A checkpoint of as many replicas is continued by as many others, as the process that keeps all
/// versions goes on after a drain.
TEST(AsynchronousReplicas, ContinueInAnotherNumber) {
  at::set_num_threads(1);
  constexpr int kSavedAt = 5, kEnd = 9;
  for (const std::string weights : {"stash", "2bw", "spectrain", "lwp_w", "spike_compensation"}) {
    for (const auto& [first, then] : {std::pair(2, 1), {1, 2}, {2, 2}}) {
      AsyncCase what{.weights = weights, .stages = 2, .replicas = first};
      AllVersions reference(what);
      for (int step = 0; step < kSavedAt; ++step) reference.train(step);
      reference.drain_into(then);
      for (int step = kSavedAt; step < kEnd; ++step) reference.train(step);

      const TemporaryFolder folder;
      on_async_meshes(what, [&](Pipeline& model, const ParallelMesh& mesh) {
        for (int step = 0; step < kSavedAt; ++step) {
          async_step(model, what, mesh.position().data, step);
        }
        save_checkpoint({.group = mesh.world(), .model = model}, kSavedAt,
                        {.folder = folder.path()});
      });
      what.replicas = then;
      TrainedParts trained;
      on_async_meshes(what, [&](Pipeline& model, const ParallelMesh& mesh) {
        load_checkpoint(folder.path(), {.group = mesh.world(), .model = model});
        for (int step = kSavedAt; step < kEnd; ++step) {
          async_step(model, what, mesh.position().data, step);
        }
        NamedValues values = state_values(model);
        std::erase_if(values, [](const auto& v) { return v.first.starts_with("optimizer."); });
        trained.take(values);
      });
      expect_same(trained.values(), reference.outcome().parameters.front(),
                  fmt::format("{}, {} then {}", weights, first, then));
    }
  }
}

/// In processes; without dropout, which replicas do not draw alike.
TEST(AsynchronousReplicas, InProcessesHaveTheBitsOfOne) {
  for (const std::string schedule : {"pipedream", "2bw"}) {
    expect_same(train_in_processes(4, schedule, {"replicated", "plain"}),
                train_in_processes(2, schedule, {"plain"}), schedule);
  }
}

/// Each rank's error; "" if none.
std::vector<std::string> errors_of_replicas(
    const AsyncCase& what, const std::function<void(Pipeline&, const ParallelMesh&)>& body,
    const std::function<void(Pipeline::Options&)>& change = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(what.stages * what.replicas));
  on_async_ranks(what.stages * what.replicas, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.replicas, .pipeline = what.stages});
    try {
      Pipeline::Options options = async_options(mesh.pipeline(), what);
      options.data = {.process_group = mesh.data()};
      if (change) change(options);
      Pipeline model(mixed_layers(), options);
      body(model, mesh);
    } catch (const Exception& e) {
      errors[static_cast<std::size_t>(world->getRank())] = e.what();
    }
  });
  return errors;
}

TEST(AsynchronousReplicas, SayOnEveryRankThatTheirUpdatesDiffer) {
  const AsyncCase what{.stages = 2, .replicas = 2, .short_at = 2};
  std::atomic<int> steps = 0;
  const auto errors = errors_of_replicas(what, [&](Pipeline& model, const ParallelMesh& mesh) {
    for (int step = 0; step < 4; ++step) {
      async_step(model, what, mesh.position().data, step);
      ++steps;
    }
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("pipedream"), HasSubstr("3, 2 of them"),
                                 HasSubstr("3 samples or more"))));
  EXPECT_LE(steps, 4 * 2);  // None trains on the third batch.
}

TEST(AsynchronousReplicas, AreNotSharded) {
  for (const std::string weights : {"stash", "2bw"}) {
    const auto errors = errors_of_replicas(
        {.weights = weights, .stages = 2, .replicas = 2}, [](Pipeline&, const ParallelMesh&) {},
        [](Pipeline::Options& options) { options.data.zero_stage = 1; });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("ZeRO stage 1"), HasSubstr("zero_stage 0"),
                                   HasSubstr("synchronous schedule"))));
  }
}

}  // namespace
}  // namespace gradwire::test
