#include "gradwire/train/pipeline/pipeline.h"

#include <atomic>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/pipeline_processes.h"
#include "tests/train/small_models.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string schedule = "1f1b";
  int micro_batches = 4;
  std::int64_t samples = 7;
  int steps = 12;
  std::optional<double> clip;
  std::vector<std::size_t> cut;
};

NamedValues train(int ranks, const Case& what) {
  TrainedParts trained;
  on_ranks(ranks, [&](const ProcessGroup& group) {
    auto options = pipeline_options(group, what.schedule, what.micro_batches);
    options.clip_norm = what.clip;
    options.cut = what.cut;
    Pipeline model(shared_layers(), options);
    for (int step = 0; step < what.steps; ++step) {
      const auto batch = pipeline_batch(what.samples, step);
      const LossSum loss = model.train_step(batch.inputs, batch.targets);
      EXPECT_EQ(loss.count, model.has_last_stage() ? static_cast<double>(what.samples) : 0);
    }
    trained.take(state_values(model));
  });
  return trained.values();
}

/// Plain libtorch: accumulates the micro-batches, each with its share of the mean.
NamedValues train_plainly(const Case& what) {
  at::set_num_threads(1);
  const Layers layers = shared_layers();
  StageModule model;
  for (std::size_t i = 0; i < layers.size(); ++i) model.add(layers.name(i), layers.make(i));
  const auto optimizer = pipeline_adam(model.parameters());
  const PipelineLoss loss = cross_entropy_sum();
  for (int step = 0; step < what.steps; ++step) {
    const auto batch = pipeline_batch(what.samples, step);
    const auto sizes = batch.inputs.tensor_split(what.micro_batches);
    const auto targets = batch.targets.tensor_split(what.micro_batches);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto output = model.forward({{kPassing, sizes[i]}}, [](std::size_t) {}).at(kPassing);
      (loss.sum(output, targets[i]) / static_cast<double>(what.samples)).backward();
    }
    if (what.clip) {
      double sum = 0;
      for (const auto& [name, tensor] : trainable_parameters(model)) {
        sum += std::pow(
            torch::linalg_vector_norm(tensor.grad(), 2, {}, false, torch::kFloat64).item<double>(),
            2);
      }
      const double scale = *what.clip / (std::sqrt(sum) + 1e-6);
      for (const auto& [name, tensor] : trainable_parameters(model)) {
        if (scale < 1) tensor.mutable_grad().mul_(scale);
      }
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  NamedValues values;
  for (const auto& [name, tensor] : trainable_parameters(model)) {
    values[name] = tensor.detach().flatten().clone();
  }
  return values;
}

NamedValues parameters_in(NamedValues values) {
  std::erase_if(values, [](const auto& each) { return each.first.starts_with("optimizer."); });
  return values;
}

TEST(PipelineTraining, OneRankAccumulatesAsPlainTorch) {
  for (const int micro_batches : {1, 3, 4, 7}) {
    for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.05)}) {
      const Case what{.micro_batches = micro_batches, .steps = 50, .clip = clip};
      expect_same(parameters_in(train(1, what)), train_plainly(what),
                  fmt::format("{} micro-batches", micro_batches));
    }
  }
}

TEST(PipelineTraining, EveryScheduleHasTheBitsOfOneProcess) {
  for (const int micro_batches : {1, 3, 4, 7}) {
    const NamedValues alone = train(1, {.micro_batches = micro_batches});
    for (const std::string schedule : {"gpipe", "1f1b", "1f1b:2", "zero_bubble_h1", "zero_bubble",
                                       "zero_bubble_v", "interleaved"}) {
      for (const int ranks : {2, 3, 4}) {
        expect_same(train(ranks, {.schedule = schedule, .micro_batches = micro_batches}), alone,
                    fmt::format("{}, {} ranks, {} micro-batches", schedule, ranks, micro_batches));
      }
    }
  }
}

TEST(PipelineTraining, ClippingHasTheBitsOfOneProcess) {
  const Case what{.schedule = "zero_bubble", .steps = 50, .clip = 0.05};
  const NamedValues alone = train(1, what);
  for (const int ranks : {2, 4}) expect_same(train(ranks, what), alone, std::to_string(ranks));
}

TEST(PipelineTraining, EveryCutHasTheSameBits) {
  const NamedValues alone = train(1, {});
  expect_same(train(2, {.cut = {1, 7}}), alone, "1, 7");
  expect_same(train(3, {.cut = {5, 1, 2}}), alone, "5, 1, 2");
}

TEST(PipelineTraining, AShortBatchHasFewerMicroBatches) {
  const Case what{.micro_batches = 5, .samples = 3};
  expect_same(train(3, what), train(1, what), "3 samples in 5 micro-batches");
  const Case interleaved{.schedule = "interleaved", .micro_batches = 4, .samples = 3};
  expect_same(train(2, interleaved), train(1, interleaved), "a number that interleaved refuses");
}

TEST(PipelineTraining, ProcessesWithDropoutHaveTheBitsOfOne) {
  const NamedValues alone = train_in_processes(1, "1f1b");
  EXPECT_FALSE(alone.empty());
  expect_same(train_in_processes(4, "1f1b"), alone, "1f1b");
  expect_same(train_in_processes(3, "zero_bubble"), alone, "zero_bubble");
  expect_same(train_in_processes(2, "zero_bubble_v"), alone, "zero_bubble_v");
}

TEST(PipelineTraining, RunsOnAnyBackend) {
  for (const int ranks : {1, 3}) {
    for (const std::string schedule : {"1f1b", "zero_bubble", "interleaved"}) {
      TrainedParts trained;
      const Case what{.schedule = schedule, .steps = 3, .clip = 0.05};
      run_on_threads(ranks, [&](const ProcessGroup& group) {
        auto options = pipeline_options(group, what.schedule, what.micro_batches);
        options.clip_norm = what.clip;
        Pipeline model(shared_layers(), options);
        for (int step = 0; step < what.steps; ++step) {
          const auto batch = pipeline_batch(what.samples, step);
          model.train_step(batch.inputs, batch.targets);
        }
        trained.take(state_values(model));
      });
      expect_same(trained.values(), train(2, what), fmt::format("{} on {}", schedule, ranks));
    }
  }
}

TEST(PipelineTraining, EvaluatesInTheOrderOfTheSamples) {
  torch::Tensor expected;
  for (const int ranks : {1, 3}) {
    on_ranks(ranks, [&](const ProcessGroup& group) {
      Pipeline model(shared_layers(), pipeline_options(group, "1f1b", 4));
      const auto batch = pipeline_batch(7, 0);
      model.train_step(batch.inputs, batch.targets);
      const torch::Tensor output = model.evaluate(batch.inputs);
      model.train_step(batch.inputs, batch.targets);
      EXPECT_EQ(output.defined(), model.has_last_stage());
      if (!output.defined()) return;
      EXPECT_EQ(output.sizes(), c10::IntArrayRef({7, 3}));
      if (ranks == 1) expected = output;
      EXPECT_TRUE(torch::equal(output, expected));
    });
  }
}

TEST(PipelineTraining, OnlyTheEndsNeedTheBatch) {
  const Case what{};
  TrainedParts trained;
  on_ranks(3, [&](const ProcessGroup& group) {
    Pipeline model(shared_layers(), pipeline_options(group, what.schedule, what.micro_batches));
    for (int step = 0; step < what.steps; ++step) {
      auto batch = pipeline_batch(what.samples, step);
      if (!model.has_first_stage()) batch.inputs = torch::Tensor();
      if (!model.has_last_stage()) batch.targets = torch::Tensor();
      model.train_step(batch.inputs, batch.targets, {.samples = what.samples});
    }
    trained.take(state_values(model));
  });
  expect_same(trained.values(), train(1, what), "ends");
}

TEST(PipelineCheckpoint, ContinuesWithAnotherNumberOfStages) {
  const Case what{.steps = 8};
  const NamedValues through = train(1, what);
  const TemporaryFolder folder;
  const auto run_part = [&](int ranks, const std::string& schedule, int from, int to, bool save) {
    TrainedParts trained;
    on_ranks(ranks, [&](const ProcessGroup& group) {
      Pipeline model(shared_layers(), pipeline_options(group, schedule, what.micro_batches));
      if (from > 0) load_checkpoint(folder.path(), {.group = group, .model = model});
      for (int step = from; step < to; ++step) {
        const auto batch = pipeline_batch(what.samples, step);
        model.train_step(batch.inputs, batch.targets);
      }
      if (save) {
        save_checkpoint({.group = group, .model = model}, to, {.folder = folder.path()});
      }
      trained.take(state_values(model));
    });
    return trained.values();
  };
  run_part(3, "zero_bubble", 0, 4, true);
  expect_same(run_part(1, "1f1b", 4, 8, false), through, "3 stages to 1");
  expect_same(run_part(2, "1f1b", 4, 6, true).size() > 0 ? run_part(4, "gpipe", 6, 8, false)
                                                         : NamedValues{},
              through, "3 stages to 2 to 4");
}

TEST(PipelineCheckpoint, HasParametersWithoutElements) {
  Layers layers = shared_layers();
  layers.add("empty", [] { return EmptyTable(); });
  struct Shape {
    int stages = 1, replicas = 1, zero_stage = 0;
  };
  const auto run_part = [&](const Shape& shape, const TemporaryFolder& folder, int from, int to) {
    TrainedParts trained;
    on_ranks(shape.stages * shape.replicas, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, {.data = shape.replicas, .pipeline = shape.stages});
      auto options = pipeline_options(mesh.pipeline(), "1f1b", 2);
      options.data = {.process_group = mesh.data(), .zero_stage = shape.zero_stage};
      Pipeline model(layers, options);
      const RunState state{.group = world, .model = model};
      if (from > 0) load_checkpoint(folder.path(), state);
      for (int step = from; step < to; ++step) {
        const auto batch = pipeline_batch(4, step);  // The same on each replica.
        model.train_step(batch.inputs, batch.targets);
      }
      save_checkpoint(state, to, {.folder = folder.path()});
      trained.take(state_values(model));
    });
    return trained.values();
  };
  const TemporaryFolder at_once;
  const NamedValues through = run_part({}, at_once, 0, 4);
  ASSERT_TRUE(through.contains("empty.table"));
  for (const int zero_stage : {0, 1, 2, 3}) {
    const TemporaryFolder folder;
    run_part({.stages = 3, .replicas = 2, .zero_stage = zero_stage}, folder, 0, 2);
    expect_same(run_part({}, folder, 2, 4), through, fmt::format("ZeRO {}", zero_stage));
  }
}

TEST(PipelineCheckpoint, ContinuesWithTheSameDropoutAndStatistics) {
  // One rank: threads share torch's random numbers.
  const auto layers = [] {
    Layers all;
    all.add("input", [] { return torch::nn::Linear(5, 8); });
    all.add("norm", [] { return torch::nn::BatchNorm1d(8); });
    all.add("dropout", [] { return torch::nn::Dropout(0.5); });
    all.add("output", [] { return torch::nn::Linear(8, 3); });
    return all;
  };
  const TemporaryFolder folder;
  const auto run_part = [&](int from, int to) {
    NamedValues values;
    on_ranks(1, [&](const ProcessGroup& group) {
      torch::manual_seed(11);
      Pipeline model(layers(), pipeline_options(group, "1f1b", 3));
      if (from > 0) load_checkpoint(folder.path(), {.group = group, .model = model});
      EXPECT_EQ(model.steps(), from);
      for (int step = from; step < to; ++step) {
        const auto batch = pipeline_batch(7, step);
        model.train_step(batch.inputs, batch.targets);
      }
      save_checkpoint({.group = group, .model = model}, to, {.folder = folder.path()});
      values = state_values(model);
    });
    return values;
  };
  const NamedValues through = run_part(0, 6);
  EXPECT_TRUE(through.contains("norm.running_mean"));
  std::filesystem::remove_all(folder / "step-000006");
  run_part(0, 3);
  expect_same(run_part(3, 6), through, "resumed");
}

TEST(PipelineTraining, StatisticsOfBatchNormAreThoseOfOneProcess) {
  const auto statistics = [](int ranks) {
    TrainedParts trained;
    on_ranks(ranks, [&](const ProcessGroup& group) {
      Layers layers;
      layers.add("sine", [] {
        return torch::nn::Functional([](const torch::Tensor& x) { return torch::sin(x); });
      });
      layers.add("norm", [] { return torch::nn::BatchNorm1d(5); });
      Pipeline model(layers, pipeline_options(group, "zero_bubble", 3));
      for (int step = 0; step < 5; ++step) {
        const auto batch = pipeline_batch(7, step);
        model.train_step(batch.inputs, batch.targets);
      }
      trained.take(state_values(model));
    });
    return trained.values();
  };
  expect_same(statistics(2), statistics(1), "batch norm");
}

/// A layer that counts how many of its kind exist.
struct CountedImpl : torch::nn::Module {
  explicit CountedImpl(std::atomic<int>& count) : count_(count) {
    ++count_;
    weight = register_parameter("weight", torch::ones({4}));
  }
  ~CountedImpl() override { --count_; }
  CountedImpl(const CountedImpl&) = delete;
  CountedImpl& operator=(const CountedImpl&) = delete;
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }

  torch::Tensor weight;

 private:
  std::atomic<int>& count_;
};
TORCH_MODULE(Counted);

TEST(PipelineLayers, ARankHoldsItsStageAndOneLayerAtMost) {
  on_ranks(4, [&](const ProcessGroup& group) {
    std::atomic<int> count = 0;
    int max = 0;
    Layers layers;
    for (int i = 0; i < 8; ++i) {
      layers.add(fmt::format("layer{}", i), [&count, &max] {
        Counted made(count);
        max = std::max(max, count.load());
        return made;
      });
    }
    const Pipeline model(layers, pipeline_options(group, "1f1b", 2));
    EXPECT_EQ(count, 2);
    EXPECT_LE(max, 3);
  });
}

std::string error_of(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  try {
    on_ranks(ranks, body);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(PipelineErrors, NameWhatIsWrongBeforeTraining) {
  const auto with = [](const Layers& layers, const std::string& schedule,
                       std::vector<std::size_t> cut = {}) {
    return error_of(2, [&](const ProcessGroup& group) {
      auto options = pipeline_options(group, schedule, 4);
      options.cut = cut;
      Pipeline model(layers, options);
      const auto batch = pipeline_batch(4, 0);
      model.train_step(batch.inputs, batch.targets);
    });
  };
  Layers one;
  one.add("only", [] { return torch::nn::Linear(5, 3); });
  EXPECT_THAT(with(one, "1f1b"), HasSubstr("1 layers cannot be divided into 2 stages"));
  EXPECT_THAT(with(shared_layers(), "1f1c"), HasSubstr("1f1b"));
  EXPECT_THAT(with(shared_layers(), "forward_only"), HasSubstr("does not train"));
  EXPECT_THAT(with(shared_layers(), "1f1b", {3, 3}), HasSubstr("8 in all"));
  Layers folded;
  folded.add("fold", [] {
    return torch::nn::Functional([](const torch::Tensor& x) { return x.flatten(); });
  });
  folded.add("last", [] { return torch::nn::Linear(5, 3); });
  EXPECT_THAT(with(folded, "1f1b", {1, 1}), HasSubstr("samples in its first dimension"));
  Layers indices;
  indices.add("argmax", [] {
    return torch::nn::Functional([](const torch::Tensor& x) { return x.argmax(1, true); });
  });
  indices.add("last", [] { return torch::nn::Linear(1, 3); });
  EXPECT_THAT(with(indices, "1f1b", {1, 1}), HasSubstr("floating-point"));
  Layers wrong;
  wrong.add("first", [] { return torch::nn::Linear(5, 7); });
  wrong.add("second", [] { return torch::nn::Linear(6, 3); });
  EXPECT_THAT(with(wrong, "1f1b", {1, 1}), HasSubstr("mat1 and mat2"));
  EXPECT_THROW(Layers().add("a.b", [] { return torch::nn::Linear(1, 1); }), Exception);
  EXPECT_THROW(one.add("only", [] { return torch::nn::Linear(1, 1); }), Exception);
}

TEST(PipelineErrors, RanksThatDisagreeSayHow) {
  const std::string error = error_of(2, [](const ProcessGroup& group) {
    const int micro_batches = group->getRank() == 0 ? 4 : 8;
    const Pipeline model(shared_layers(), pipeline_options(group, "1f1b", micro_batches));
  });
  EXPECT_THAT(error, HasSubstr("rank 1 has another pipeline than rank 0"));
  EXPECT_THAT(error, HasSubstr("8 micro-batches"));
}

/// Fails when it is called after `calls` others.
PipelineLoss loss_that_fails_after(int calls) {
  PipelineLoss loss = cross_entropy_sum();
  loss.sum = [sum = loss.sum, left = calls](const torch::Tensor& output,
                                            const torch::Tensor& targets) mutable {
    if (left-- == 0) throw std::runtime_error("the loss is lost");
    return sum(output, targets);
  };
  return loss;
}

TEST(PipelineErrors, OfAnyBackendNameStageAndMicroBatch) {
  const auto errors = errors_on_threads(3, [](const ProcessGroup& group) {
    auto options = pipeline_options(group, "gpipe", 4);
    // Rank 2 fails in its last forward of step 1, when GPipe's other ranks wait for gradients only.
    options.loss = loss_that_fails_after(4 + 3);
    Pipeline model(shared_layers(), options);
    const auto batch = pipeline_batch(8, 0);
    for (int step = 0; step < 2; ++step) model.train_step(batch.inputs, batch.targets);
  });
  EXPECT_THAT(errors[2], HasSubstr("the loss is lost"));
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(errors[rank],
                ::testing::ContainsRegex(fmt::format(
                    "step 1, {0}B0: rank {0} of the pipeline waits for the gradient of micro-batch "
                    "0 from stage {1} to stage {0}: the group was aborted",
                    rank, rank + 1)));
  }
}

// Each replica has one rank: only the group of the replicas has ranks that can wait.
TEST(PipelineErrors, EndTheGroupOfTheReplicasToo) {
  run_on_threads(2, [](const ProcessGroup& replicas) {
    auto options = pipeline_options(group_of_one(), "gpipe", 4);
    options.data.process_group = replicas;
    if (replicas->getRank() == 1) options.loss = loss_that_fails_after(2);
    Pipeline model(shared_layers(), options);
    const auto batch = pipeline_batch(8, 0);
    const std::string error = test::error_of([&] {
      model.train_step(batch.inputs, batch.targets);
      model.finish();
    });
    EXPECT_THAT(error, HasSubstr(replicas->getRank() == 1 ? "the loss is lost" : "aborted"));
  });
}

TEST(PipelineErrors, CountTheStepsOfTheTraining) {
  const auto errors = errors_on_threads(2, [](const ProcessGroup& group) {
    auto options = pipeline_options(group, "gpipe", 4);
    options.loss = loss_that_fails_after(4 + 1);
    Pipeline model(shared_layers(), options);
    model.resume_at(500, "{}");
    for (const int samples : {8, 2}) {  // The second batch has a schedule of two micro-batches.
      const auto batch = pipeline_batch(samples, 0);
      model.train_step(batch.inputs, batch.targets);
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("step 501, 0B0: rank 0 of the pipeline waits for"));
}

TEST(PipelineErrors, ABatchOfAnotherSizeOnOneRankEndsAll) {
  const std::string error = error_of(2, [](const ProcessGroup& group) {
    Pipeline model(shared_layers(), pipeline_options(group, "1f1b", 2));
    const auto batch = pipeline_batch(group->getRank() == 0 ? 4 : 6, 0);
    model.train_step(batch.inputs, batch.targets);
  });
  EXPECT_THAT(error, HasSubstr("micro-batch"));
}

}  // namespace
}  // namespace gradwire::test
