#include "gradwire/train/parallel_mesh.h"

#include <mutex>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/pipeline_processes.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

std::string refusal(MeshDegrees degrees, int ranks) {
  try {
    complete_degrees(degrees, ranks);
  } catch (const Exception& e) {
    return e.what();
  }
  return "";
}

TEST(ParallelMesh, EveryAxisHasTheRanksThatDifferAlongIt) {
  on_ranks(8, [](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.pipeline = 2, .tensor = 2});
    EXPECT_EQ(mesh.describe(), "8 ranks: pipeline 2 x data 2 x tensor 2");
    const int rank = world->getRank();
    EXPECT_EQ(mesh.position(),
              (MeshPosition{.data = rank / 2 % 2, .pipeline = rank / 4, .tensor = rank % 2}));
    EXPECT_EQ(mesh.rank_of(mesh.position()), rank);
    EXPECT_EQ(mesh.spatial()->getSize(), 1);
    const auto mine = static_cast<double>(rank);
    EXPECT_EQ(sum_over_ranks(*mesh.tensor(), {mine})[0], 2 * (rank / 2 * 2) + 1);
    EXPECT_EQ(sum_over_ranks(*mesh.data(), {mine})[0], 2 * (rank / 4 * 4 + rank % 2) + 2);
    EXPECT_EQ(sum_over_ranks(*mesh.pipeline(), {mine})[0], 2 * (rank % 4) + 4);
    EXPECT_EQ(mesh.pipeline()->getRank(), mesh.position().pipeline);
  });
}

TEST(ParallelMesh, OneAxisWorksOnAnyBackend) {
  run_on_threads(2, [](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.pipeline = 2});
    EXPECT_EQ(mesh.pipeline(), world);
    EXPECT_EQ(mesh.data()->getSize(), 1);
  });
  const auto errors = errors_on_threads(
      4, [](const ProcessGroup& world) { const ParallelMesh mesh(world, {.pipeline = 2}); });
  EXPECT_THAT(errors[0], HasSubstr("gradwire::init()"));
}

TEST(ParallelMesh, RefusesDegreesThatAreNotTheRanks) {
  EXPECT_EQ(complete_degrees({.pipeline = 4}, 8).data, 2);
  EXPECT_EQ(refusal({.data = 2, .pipeline = 4}, 8), "");
  EXPECT_THAT(refusal({.data = 2, .pipeline = 4}, 6),
              HasSubstr("pipeline 4 x data 2 needs 8 ranks, but the job has 6"));
  EXPECT_THAT(refusal({.pipeline = 4}, 6), HasSubstr("needs a multiple of 4 ranks"));
  EXPECT_THAT(refusal({.pipeline = -1}, 6), HasSubstr("a degree of -1"));
  EXPECT_THAT(refusal({.data = 1, .pipeline = 0}, 6), HasSubstr("a degree of 0"));
}

/// Training of 8 samples by replica 0 and `others` by each other one. Micro-batches have two
/// samples or more: a product of one row has other bits where ZeRO lays a weight out unaligned.
struct Hybrid {
  int data = 2;
  int pipeline = 2;
  int zero_stage = 0;
  std::string schedule = "zero_bubble";
  int micro_batches = 4;
  std::int64_t others = 8;
  std::optional<double> clip = {};
  int steps = 6;
};

std::int64_t samples_of(const Hybrid& what, int replica) {
  return replica == 0 ? 8 : what.others;
}

/// Replica r's part of a step: samples of its own.
PipelineBatch batch_of(const Hybrid& what, int replica, int step) {
  return pipeline_batch(samples_of(what, replica), 10 * step + replica);
}

std::unique_ptr<Pipeline> make_hybrid(const Hybrid& what, const ParallelMesh& mesh) {
  auto options = pipeline_options(mesh.pipeline(), what.schedule, what.micro_batches);
  options.data = {.process_group = mesh.data(), .zero_stage = what.zero_stage};
  options.clip_norm = what.clip;
  return std::make_unique<Pipeline>(shared_layers(), options);
}

void train_hybrid(Pipeline& model, const Hybrid& what, const ParallelMesh& mesh, int from, int to) {
  const int replica = mesh.position().data;
  for (int step = from; step < to; ++step) {
    const auto batch = batch_of(what, replica, step);
    const LossSum loss =
        model.train_step(batch.inputs, batch.targets,
                         {.next_samples = step + 1 < to ? samples_of(what, replica) : -1});
    EXPECT_EQ(loss.count, model.has_last_stage() ? static_cast<double>(batch.targets.numel()) : 0);
  }
  model.finish();
}

/// Whole parameters by name, after training; gathered from the ranks that have parts of them.
NamedValues train(const Hybrid& what) {
  const TemporaryFolder folder;
  on_ranks(what.data * what.pipeline, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.data, .pipeline = what.pipeline});
    const auto model = make_hybrid(what, mesh);
    train_hybrid(*model, what, mesh, 0, what.steps);
    save_checkpoint({.group = world, .model = *model}, what.steps, {.folder = folder.path()});
  });
  TrainedParts trained;
  on_ranks(1, [&](const ProcessGroup& group) {
    Pipeline model(shared_layers(), pipeline_options(group, "1f1b", 1));
    load_checkpoint(folder.path(), {.group = group, .model = model});
    trained.take(state_values(model));
  });
  return trained.values();
}

/// The layers of DataParallel's model in plain libtorch: replicas' means, averaged.
NamedValues train_data_parallel(const Hybrid& what) {
  TrainedParts trained;
  on_ranks(what.data, [&](const ProcessGroup& group) {
    const Layers layers = shared_layers();
    torch::nn::Sequential model;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      model->push_back(layers.name(i), layers.make(i));
    }
    DataParallel parallel(model, {.process_group = group, .optimizer = pipeline_adam});
    for (int step = 0; step < what.steps; ++step) {
      const auto batch = batch_of(what, group->getRank(), step);
      torch::nn::functional::cross_entropy(parallel(batch.inputs), batch.targets).backward();
      parallel.step();
    }
    parallel.finish();
    NamedValues values;
    for (const auto& [name, tensor] : trainable_parameters(*model)) {
      values[name] = tensor.detach().flatten().clone();
    }
    trained.take(values);
  });
  return trained.values();
}

void expect_close(const NamedValues& actual, const NamedValues& expected, const std::string& what) {
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(actual.contains(name)) << what << ": " << name;
    EXPECT_TRUE(torch::allclose(actual.at(name), value, 1e-4, 1e-5)) << what << ": " << name;
  }
}

NamedValues parameters_of(NamedValues values) {
  std::erase_if(values, [](const auto& each) { return each.first.starts_with("optimizer."); });
  return values;
}

TEST(HybridTraining, ReplicasOfOneStageAreDataParallel) {
  const Hybrid what{.pipeline = 1, .micro_batches = 1};
  expect_same(parameters_of(train(what)), train_data_parallel(what), "one micro-batch");
}

TEST(HybridTraining, EveryPipelineHasTheBitsOfOneStage) {
  for (const bool clip : {false, true}) {
    Hybrid what{.pipeline = 1};
    if (clip) what.clip = 0.05;
    const NamedValues expected = train(what);
    what.pipeline = 2;
    for (const std::string schedule : {"1f1b", "zero_bubble", "interleaved"}) {
      what.schedule = schedule;
      expect_same(train(what), expected, schedule);
    }
  }
}

TEST(HybridTraining, ZeroShardsTheStages) {
  const NamedValues expected = train({});
  // Stage 1 reduces the same sums; 2 and 3 reduce every micro-batch.
  expect_same(train({.zero_stage = 1}), expected, "ZeRO 1");
  expect_close(train({.zero_stage = 2}), expected, "ZeRO 2");
  expect_close(train({.zero_stage = 3}), expected, "ZeRO 3");
  expect_same(train({.zero_stage = 3, .micro_batches = 1}), train({.micro_batches = 1}),
              "ZeRO 3, one micro-batch");
  expect_close(train({.zero_stage = 2, .schedule = "interleaved", .clip = 0.05}),
               train({.schedule = "interleaved", .clip = 0.05}), "ZeRO 2, clipped");
}

TEST(HybridTraining, UnequalReplicasAreWeighedByTheirSamples) {
  // The gradient is that of the mean over all samples, so that one process with the samples of both
  // replicas computes the same but for rounding.
  const Hybrid what{.others = 3, .steps = 1};
  NamedValues expected;
  on_ranks(1, [&](const ProcessGroup& group) {
    Pipeline model(shared_layers(), pipeline_options(group, "1f1b", 1));
    const auto a = batch_of(what, 0, 0), b = batch_of(what, 1, 0);
    model.train_step(torch::cat({a.inputs, b.inputs}), torch::cat({a.targets, b.targets}));
    expected = state_values(model);
  });
  expect_close(train(what), expected, "8 and 3 samples");
}

TEST(HybridTraining, GradientsOfEachMicroBatchNeedAsManyOnAllReplicas) {
  for (const int zero_stage : {2, 3}) {
    const Hybrid what{.zero_stage = zero_stage, .others = 3};
    EXPECT_THAT(error_of([&] { train(what); }),
                HasSubstr(fmt::format("ZeRO stage {} adds gradients of all replicas for each "
                                      "micro-batch, but they have 4, 3 of them",
                                      zero_stage)));
  }
}

TEST(HybridTraining, ReplicasEvaluateBatchesOfTheirOwnSizes) {
  const auto inputs = [](std::int64_t samples) { return pipeline_batch(samples, 0).inputs; };
  std::map<std::int64_t, torch::Tensor> expected;
  on_ranks(1, [&](const ProcessGroup& group) {
    Pipeline model(shared_layers(), pipeline_options(group, "1f1b", 1));
    for (const std::int64_t samples : {8, 3, 1})
      expected[samples] = model.evaluate(inputs(samples));
  });
  for (const int zero_stage : {1, 3}) {
    on_ranks(4, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, {.data = 2, .pipeline = 2});
      const auto model = make_hybrid({.zero_stage = zero_stage}, mesh);
      for (const std::int64_t other : {8, 3, 1}) {
        const std::int64_t samples = mesh.position().data == 0 ? 8 : other;
        const auto output = model->evaluate(inputs(samples));
        ASSERT_EQ(output.defined(), model->has_last_stage());
        EXPECT_TRUE(!output.defined() || torch::allclose(output, expected.at(samples), 1e-5, 1e-6));
      }
    });
  }
}

TEST(HybridTraining, AReplicaEvaluatesAloneAndFinishGivesAllTheBuffersOfTheFirst) {
  Layers layers;
  layers.add("linear", [] {
    const torch::nn::Linear linear(5, 3);
    linear->weight.set_data(torch::sin(torch::arange(15, torch::kFloat32)).view({3, 5}));
    linear->bias.set_data(torch::zeros({3}));
    return linear;
  });
  layers.add("norm", [] { return torch::nn::BatchNorm1d(3); });
  const auto inputs = pipeline_batch(8, 0).inputs;
  std::mutex mutex;
  std::vector<torch::Tensor> outputs;
  on_ranks(4, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = 2, .pipeline = 2});
    auto options = pipeline_options(mesh.pipeline(), "1f1b", 2);
    options.data = {.process_group = mesh.data()};
    Pipeline model(layers, options);
    const auto batch = pipeline_batch(8, mesh.position().data);
    model.train_step(batch.inputs, batch.targets);
    if (mesh.position().data == 0) model.evaluate(inputs);
    model.finish();
    const torch::Tensor output = model.evaluate(inputs);
    const std::lock_guard lock(mutex);
    if (output.defined()) outputs.push_back(output);
  });
  ASSERT_EQ(outputs.size(), 2);
  EXPECT_TRUE(torch::equal(outputs[0], outputs[1]));
}

/// Uses dropout, and codecs that draw random numbers.
TEST(HybridTraining, ReplicasDrawWhatOneProcessDrawsForAllMicroBatches) {
  expect_close(train_in_processes(4, "zero_bubble", {"halved", "coded"}),
               train_in_processes(2, "1f1b", {"doubled", "coded"}), "two replicas");
}

TEST(HybridCheckpoint, ContinuesInAnotherLayout) {
  const Hybrid first{.zero_stage = 1, .steps = 3};
  const TemporaryFolder folder;
  const auto part = [&](const Hybrid& layout, int from, int to) {
    on_ranks(layout.data * layout.pipeline, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, {.data = layout.data, .pipeline = layout.pipeline});
      const auto model = make_hybrid(layout, mesh);
      if (from > 0) load_checkpoint(folder.path(), {.group = world, .model = *model});
      train_hybrid(*model, layout, mesh, from, to);
      save_checkpoint({.group = world, .model = *model}, to, {.folder = folder.path()});
    });
  };
  part(first, 0, 3);
  part({.pipeline = 1, .schedule = "1f1b"}, 3, 5);
  part({.pipeline = 2, .schedule = "gpipe"}, 5, 6);
  TrainedParts trained;
  on_ranks(1, [&](const ProcessGroup& group) {
    Pipeline model(shared_layers(), pipeline_options(group, "1f1b", 1));
    load_checkpoint(folder.path(), {.group = group, .model = model});
    EXPECT_EQ(model.steps(), 6);
    trained.take(state_values(model));
  });
  expect_same(trained.values(), train({}), "ZeRO 1, then one stage, then two");
}

/// Losses and parameters of two pipelines of two ranks in turn; alone: of the first one.
std::vector<double> losses_in_turn(bool alone, std::int64_t next_samples) {
  std::vector<double> losses;
  const auto body = [&](const ProcessGroup& group) {
    Pipeline first(shared_layers(), pipeline_options(group, "1f1b", 2));
    std::optional<Pipeline> second;
    if (!alone) second.emplace(shared_layers(), pipeline_options(group, "1f1b", 2));
    for (int step = 0; step < 5; ++step) {
      const auto batch = pipeline_batch(4, step);
      const std::int64_t next = step < 4 ? next_samples : -1;
      const LossSum loss = first.train_step(batch.inputs, batch.targets, {.next_samples = next});
      if (second) {
        const auto other = pipeline_batch(4, 100 + step);
        second->train_step(other.inputs, other.targets, {.next_samples = next});
      }
      if (first.has_last_stage()) losses.push_back(loss.mean());
    }
  };
  on_ranks(2, body);
  std::vector<double> on_other_backend;
  std::swap(losses, on_other_backend);
  run_on_threads(2, body);
  EXPECT_EQ(losses, on_other_backend);
  return losses;
}

TEST(HybridTraining, TwoPipelinesOnOneGroupDoNotMeet) {
  const std::vector<double> expected = losses_in_turn(/*alone=*/true, -1);
  EXPECT_EQ(losses_in_turn(/*alone=*/false, -1), expected);
  EXPECT_EQ(losses_in_turn(/*alone=*/false, 4), expected);
}

TEST(HybridTraining, TheNextBatchHasTheAnnouncedSize) {
  const auto message = [](bool evaluates) -> std::string {
    try {
      on_ranks(2, [&](const ProcessGroup& group) {
        Pipeline model(shared_layers(), pipeline_options(group, "1f1b", 3));
        const auto batch = pipeline_batch(7, 0), other = pipeline_batch(6, 1);
        model.train_step(batch.inputs, batch.targets, {.next_samples = 7});
        if (evaluates) model.evaluate(batch.inputs);
        model.train_step(other.inputs, other.targets);
      });
    } catch (const Exception& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message(false),
              HasSubstr("train_step got 6 samples, but the previous train_step announced "
                        "next_samples = 7"));
  EXPECT_THAT(message(true), HasSubstr("evaluate got 7 samples for another schedule"));
}

}  // namespace
}  // namespace gradwire::test
