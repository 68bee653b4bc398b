#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/parallel_mesh.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "gradwire/train/zero/shards.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/pipeline_model.h"

/// Tied parameters of pipelines whose replicas shard them.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

/// Training of 8 samples by each replica: micro-batches have two or more (parallel_mesh_test.cpp).
struct ShardedTies {
  int data = 2;
  int pipeline = 2;
  int zero_stage = 0;
  std::string schedule = "1f1b";
  int micro_batches = 4;
  std::optional<double> clip = {};
  std::string codec = "none";
  OptimizerFactory optimizer = pipeline_adam;
  bool same_batches = false;  ///< All replicas have the same batches.

  std::string text() const {
    return fmt::format("{} of {} x {} with {} micro-batches, ZeRO {}", schedule, data, pipeline,
                       micro_batches, zero_stage);
  }
};

std::unique_ptr<Pipeline> make_pipeline(const Layers& layers, const ShardedTies& what,
                                        const ParallelMesh& mesh) {
  auto options = pipeline_options(mesh.pipeline(), what.schedule, what.micro_batches);
  options.data = {.process_group = mesh.data(),
                  .zero_stage = what.zero_stage,
                  .options = {.codec = what.codec}};
  options.clip_norm = what.clip;
  options.optimizer = what.optimizer;
  return std::make_unique<Pipeline>(layers, options);
}

void train_steps(Pipeline& model, const ShardedTies& what, const ParallelMesh& mesh, int from,
                 int to) {
  const int replica = what.same_batches ? 0 : mesh.position().data;
  for (int step = from; step < to; ++step) {
    const auto batch = pipeline_batch(8, 10 * step + replica);
    model.train_step(batch.inputs, batch.targets);
  }
}

/// Trains from one step to another. Continues from the checkpoint in the folder, and leaves one.
void train_part(const Layers& layers, const ShardedTies& what, int from, int to,
                const TemporaryFolder& folder) {
  on_ranks(what.data * what.pipeline, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.data, .pipeline = what.pipeline});
    const auto model = make_pipeline(layers, what, mesh);
    if (from > 0) load_checkpoint(folder.path(), {.group = world, .model = *model});
    train_steps(*model, what, mesh, from, to);
    save_checkpoint({.group = world, .model = *model}, to, {.folder = folder.path()});
  });
}

/// Whole parameters and states of the checkpoint in the folder.
NamedValues values_in(const TemporaryFolder& folder, const Layers& layers,
                      const ShardedTies& what) {
  NamedValues values;
  on_ranks(1, [&](const ProcessGroup& group) {
    const ParallelMesh mesh(group, {});
    const auto model = make_pipeline(layers, {.optimizer = what.optimizer}, mesh);
    load_checkpoint(folder.path(), {.group = group, .model = *model});
    values = state_values(*model);
  });
  return values;
}

NamedValues train_ties(const Layers& layers, const ShardedTies& what) {
  const TemporaryFolder folder;
  train_part(layers, what, 0, 6, folder);
  return values_in(folder, layers, what);
}

NamedValues train_ties(const ShardedTies& what) {
  return train_ties(with_ties(shared_layers()), what);
}

void expect_close_values(const NamedValues& actual, const NamedValues& expected,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(torch::allclose(actual.at(name), value, 1e-4, 1e-5)) << what << ": " << name;
  }
}

/// Expects equal parameters, and equal states of Adam, of all holders.
void expect_equal_holders(const NamedValues& values, const std::vector<std::string>& holders) {
  for (const std::string prefix : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
    for (const std::string& holder : holders) {
      ASSERT_TRUE(values.contains(prefix + holder)) << prefix << holder;
      EXPECT_TRUE(torch::equal(values.at(prefix + holder), values.at(prefix + holders.front())))
          << prefix << holder;
    }
  }
}

TEST(TiedZero, HasTheBitsOfReplicas) {
  const NamedValues expected = train_ties({.pipeline = 1});
  const NamedValues whole = train_ties({.pipeline = 1, .micro_batches = 1});
  expect_ties_hold(expected);
  for (const std::string schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    for (const int ranks : {2, 3}) {
      ShardedTies what{.pipeline = ranks, .zero_stage = 1, .schedule = schedule};
      // Stage 1 reduces the same sums; 2 and 3 reduce every micro-batch.
      expect_same(train_ties(what), expected, what.text());
      for (const int zero_stage : {2, 3}) {
        what.zero_stage = zero_stage;
        what.micro_batches = 4;
        const NamedValues actual = train_ties(what);
        expect_ties_hold(actual);
        expect_close_values(actual, expected, what.text());
        what.micro_batches = 1;
        expect_same(train_ties(what), whole, what.text());
      }
    }
  }
}

TEST(TiedZero, StagesOfOneRankExchangeShardsToo) {
  const NamedValues expected = train_ties({.pipeline = 1});
  for (const int ranks : {1, 2}) {
    const ShardedTies what{.pipeline = ranks, .zero_stage = 1, .schedule = "interleaved:2"};
    expect_same(train_ties(what), expected, what.text());
  }
}

TEST(TiedZero, OneReplicaHasItsBits) {
  const NamedValues expected = train_ties({.data = 1, .pipeline = 1});
  for (const int zero_stage : {1, 2, 3}) {
    const ShardedTies what{.data = 1, .pipeline = 3, .zero_stage = zero_stage};
    expect_same(train_ties(what), expected, what.text());
  }
}

TEST(TiedZero, UnevenShardsAreEqualInAllHolders) {
  // Shards of 3, 3 and 2 of the 8 scales of a norm.
  const NamedValues expected = train_ties({.data = 3, .pipeline = 1});
  for (const int zero_stage : {1, 2, 3}) {
    for (const int ranks : {2, 3}) {
      const ShardedTies what{.data = 3, .pipeline = ranks, .zero_stage = zero_stage};
      const NamedValues actual = train_ties(what);
      expect_ties_hold(actual);
      expect_close_values(actual, expected, what.text());
    }
  }
}

TEST(TiedZero, ClipsByTheNormThatCountsTiedGradientsOnce) {
  const NamedValues expected = train_ties({.pipeline = 1, .clip = 0.05});
  for (const int zero_stage : {1, 2, 3}) {
    for (const int ranks : {1, 2, 3}) {
      const ShardedTies what{.pipeline = ranks, .zero_stage = zero_stage, .clip = 0.05};
      const NamedValues actual = train_ties(what);
      expect_ties_hold(actual);
      expect_close_values(actual, expected, what.text());
    }
  }
}

TEST(TiedZero, LambStepsHoldersAlike) {
  const OptimizerFactory lamb = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Lamb>(std::move(parameters), LambOptions(0.01).weight_decay(0.1));
  };
  const NamedValues expected = train_ties({.pipeline = 1, .optimizer = lamb});
  for (const int zero_stage : {1, 2, 3}) {
    const ShardedTies what{.pipeline = 3, .zero_stage = zero_stage, .optimizer = lamb};
    const NamedValues actual = train_ties(what);
    expect_ties_hold(actual);
    expect_close_values(actual, expected, what.text());
  }
}

/// Parameters named as the first holders of the ties have a larger rate; vectors are not decayed.
OptimizerFactory grouped_adamw() {
  return [](const std::vector<NamedTensor>& parameters) {
    using torch::optim::AdamW, torch::optim::AdamWOptions;
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const double rate : {0.01, 0.001, 0.002}) {
      const double decay = rate == 0.001 ? 0 : 0.1;
      auto options = std::make_unique<AdamWOptions>(AdamWOptions(rate).weight_decay(decay));
      groups.emplace_back(std::vector<torch::Tensor>(), std::move(options));
    }
    for (const auto& [name, tensor] : parameters) {
      const bool is_first = name.starts_with("block0.") || name.starts_with("norm0.");
      groups[is_first ? 0 : tensor.dim() < 2 ? 1 : 2].params().push_back(tensor);
    }
    return std::make_unique<AdamW>(std::move(groups), AdamWOptions(0.01));
  };
}

TEST(TiedZero, ParameterGroupsAreThoseOfTheFirstHolder) {
  const OptimizerFactory adamw = grouped_adamw();
  const NamedValues expected = train_ties({.pipeline = 1, .optimizer = adamw});
  const NamedValues whole = train_ties({.pipeline = 1, .micro_batches = 1, .optimizer = adamw});
  expect_ties_hold(expected);
  for (const int ranks : {2, 3}) {
    for (const int zero_stage : {0, 1, 2, 3}) {
      ShardedTies what{.pipeline = ranks, .zero_stage = zero_stage, .optimizer = adamw};
      if (zero_stage > 1) what.micro_batches = 1;
      expect_same(train_ties(what), zero_stage > 1 ? whole : expected, what.text());
    }
  }
}

/// Multiplies by one number.
struct ScaleImpl : torch::nn::Module {
  ScaleImpl() : weight(register_parameter("weight", torch::ones({1}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(Scale);

TEST(TiedZero, ARankWithoutElementsOfATieTakesPart) {
  Layers layers;
  layers.add("scale0", [] { return Scale(); });
  layers.add("hidden",
             [] { return torch::nn::Sequential(torch::nn::Linear(5, 5), torch::nn::Tanh()); });
  layers.add("scale1", [] { return Scale(); });
  layers.add("output", [] { return torch::nn::Linear(5, 3); });
  layers.tie("scale0.weight", "scale1.weight");
  const Layers shared = with_values(layers, drawn_parameters(layers));
  const NamedValues expected = train_ties(shared, {.pipeline = 1, .micro_batches = 1});
  for (const int zero_stage : {1, 2, 3}) {
    const ShardedTies what{.zero_stage = zero_stage, .micro_batches = 1};
    const NamedValues actual = train_ties(shared, what);
    expect_equal_holders(actual, {"scale0.weight", "scale1.weight"});
    expect_same(actual, expected, what.text());
  }
}

/// A linear layer with a weight that its forward does not use.
struct SpareImpl : torch::nn::Module {
  SpareImpl()
      : linear(register_module("linear", torch::nn::Linear(5, 5))),
        spare(register_parameter("spare", torch::ones({5, 5}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(linear(x)); }
  torch::nn::Linear linear;
  torch::Tensor spare;
};
TORCH_MODULE(Spare);

TEST(TiedZero, AHolderThatNoForwardUsesTakesTheStepsOfTheOthers) {
  Layers layers;
  layers.add("input", [] { return torch::nn::Linear(5, 5); });
  layers.add("spare", [] { return Spare(); });
  layers.add("output", [] { return torch::nn::Linear(5, 3); });
  layers.tie("input.weight", "spare.spare");
  const Layers shared = with_values(layers, drawn_parameters(layers));
  // DataParallel refuses parameters without gradients; the mean of two equal gradients is either.
  const NamedValues expected =
      train_ties(shared, {.data = 1, .pipeline = 1, .micro_batches = 1, .same_batches = true});
  for (const int zero_stage : {1, 2, 3}) {
    const ShardedTies what{
        .pipeline = 3, .zero_stage = zero_stage, .micro_batches = 1, .same_batches = true};
    const NamedValues actual = train_ties(shared, what);
    expect_equal_holders(actual, {"input.weight", "spare.spare"});
    expect_same(actual, expected, what.text());
  }
}

/// Units of fewer than 1024 elements are not compressed.
constexpr int kCodedWidth = 40;

TEST(TiedZero, CodecsLeaveHoldersEqual) {
  Layers layers;
  layers.add("input", [] { return torch::nn::Linear(5, kCodedWidth); });
  for (const std::string name : {"a", "b"}) {
    layers.add(name, [] {
      return torch::nn::Sequential(torch::nn::Linear(kCodedWidth, kCodedWidth), torch::nn::Tanh());
    });
  }
  layers.add("output", [] { return torch::nn::Linear(kCodedWidth, 3); });
  layers.tie("a.0.weight", "b.0.weight");
  const Layers shared = with_values(layers, drawn_parameters(layers));
  const NamedValues exact = train_ties(shared, {});
  for (const std::string codec : {"int8", "top_k:0.1"}) {
    for (const int zero_stage : {1, 2, 3}) {
      const NamedValues actual =
          train_ties(shared, {.zero_stage = zero_stage, .micro_batches = 2, .codec = codec});
      expect_equal_holders(actual, {"a.0.weight", "b.0.weight"});
      EXPECT_FALSE(torch::equal(actual.at("a.0.weight"), exact.at("a.0.weight"))) << codec;
    }
  }
}

TEST(TiedZero, ACheckpointContinuesInAnotherCutAndStage) {
  const Layers layers = with_ties(shared_layers());
  const TemporaryFolder folder;
  train_part(layers, {.zero_stage = 1, .micro_batches = 1}, 0, 2, folder);
  train_part(layers, {.pipeline = 3, .zero_stage = 3, .micro_batches = 1}, 2, 4, folder);
  train_part(layers, {.zero_stage = 0, .micro_batches = 1}, 4, 5, folder);
  train_part(layers, {.zero_stage = 2, .micro_batches = 1}, 5, 6, folder);
  expect_same(values_in(folder, layers, {}), train_ties({.micro_batches = 1}), "four parts");
}

TEST(TiedZero, AModelWithoutTheTieIsRefused) {
  for (const int zero_stage : {1, 3}) {
    const TemporaryFolder folder;
    const ShardedTies what{.zero_stage = zero_stage};
    train_part(shared_layers(), what, 0, 1, folder);
    EXPECT_THAT(test::error_of([&] { train_part(with_ties(shared_layers()), what, 1, 2, folder); }),
                HasSubstr("block0.0.weight and block2.0.weight are tied, but the loaded values"));
  }
}

TEST(TiedZero, StagesWithOtherReplicasAreRefused) {
  const auto make = [](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = 2, .pipeline = 2});
    auto options = pipeline_options(mesh.pipeline(), "1f1b", 4);
    options.data = {.zero_stage = 1};
    if (mesh.position().pipeline == 0) options.data.process_group = mesh.data();
    const Pipeline model(with_ties(shared_layers()), options);
  };
  EXPECT_THAT(test::error_of([&] { on_ranks(4, make); }),
              ::testing::ContainsRegex(
                  "rank 1 of the pipeline is replica 0 of 1, and rank 0 is replica [01] of 2"));
}

TEST(TiedZero, FrozenHoldersShareTheirFirstValues) {
  for (const int zero_stage : {1, 2, 3}) {
    const NamedValues values = train_ties(frozen_ties(), {.zero_stage = zero_stage});
    EXPECT_TRUE(torch::equal(values.at("b.weight"), torch::ones({25}))) << zero_stage;
  }
}

/// Bytes that each rank of two replicas of two stages sends in a step.
std::map<int, std::size_t> bytes_of_step(const Layers& layers, int zero_stage) {
  std::map<int, std::size_t> bytes;
  std::mutex mutex;
  on_ranks(4, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = 2, .pipeline = 2});
    const ShardedTies what{.zero_stage = zero_stage};
    const auto model = make_pipeline(layers, what, mesh);
    const auto train = [&](int step) {
      train_steps(*model, what, mesh, step, step + 1);
      model->finish();
    };
    train(0);
    const std::size_t sent = payload_of(world, [&] { train(1); });
    const std::lock_guard lock(mutex);
    bytes[world->getRank()] = sent;
  });
  return bytes;
}

TEST(TiedZero, RanksExchangeTheirShardsOfTheGradients) {
  constexpr std::size_t kTied = 12 * 8 * sizeof(float);
  Layers tied = shared_layers();
  tied.tie("block0.0.weight", "block2.0.weight");
  for (const int zero_stage : {0, 1, 2, 3}) {
    const auto with = bytes_of_step(tied, zero_stage);
    const auto without = bytes_of_step(shared_layers(), zero_stage);
    for (const auto& [rank, bytes] : without) {
      EXPECT_EQ(with.at(rank) - bytes, zero_stage == 0 ? kTied : kTied / 2)
          << "rank " << rank << ", ZeRO " << zero_stage;
    }
  }
}

}  // namespace
}  // namespace gradwire::test
