#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/checkpoint/save.h"
#include "gradwire/train/parallel_mesh.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/pipeline_processes.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

struct TiedCase {
  std::string schedule = "1f1b";
  int pipeline = 1;
  int data = 1;
  int micro_batches = 4;
  std::optional<double> clip;
  std::vector<std::size_t> cut;
  int steps = 6;
};

/// Parameters and optimizer states of replica 0.
NamedValues train_tied(const TiedCase& what) {
  TrainedParts trained;
  on_ranks(what.pipeline * what.data, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.data, .pipeline = what.pipeline});
    auto options = pipeline_options(mesh.pipeline(), what.schedule, what.micro_batches);
    options.data = {.process_group = mesh.data()};
    options.clip_norm = what.clip;
    options.cut = what.cut;
    Pipeline model(with_ties(shared_layers()), options);
    for (int step = 0; step < what.steps; ++step) {
      const auto batch = pipeline_batch(7, 10 * step + mesh.position().data);
      model.train_step(batch.inputs, batch.targets);
    }
    model.finish();
    if (mesh.position().data == 0) trained.take(state_values(model));
  });
  return trained.values();
}

TEST(TiedParameters, EverySchedulesBitsAreThoseOfOneStage) {
  for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.05)}) {
    const NamedValues alone = train_tied({.clip = clip});
    expect_ties_hold(alone);
    for (const std::string schedule : {"gpipe", "1f1b", "zero_bubble", "interleaved"}) {
      for (const int ranks : {2, 3, 4}) {
        expect_same(train_tied({.schedule = schedule, .pipeline = ranks, .clip = clip}), alone,
                    fmt::format("{}, {} ranks", schedule, ranks));
      }
    }
  }
  expect_same(train_tied({.pipeline = 2, .cut = {7, 1}}), train_tied({}),
              "all holders in one stage");
}

TEST(TiedParameters, AreTiedInReplicasToo) {
  const NamedValues expected = train_tied({.data = 2});
  expect_ties_hold(expected);
  expect_same(train_tied({.schedule = "zero_bubble", .pipeline = 2, .data = 2}), expected, "2 x 2");
}

TEST(TiedParameters, ProcessesWithDropoutHaveTheBitsOfOne) {
  const NamedValues alone = train_in_processes(1, "1f1b", {"tied", "clipped"});
  expect_ties_hold(alone);
  expect_same(train_in_processes(3, "1f1b", {"tied", "clipped"}), alone, "1f1b");
  expect_same(train_in_processes(4, "zero_bubble", {"tied", "clipped"}), alone, "zero_bubble");
  expect_same(train_in_processes(2, "interleaved", {"tied", "clipped", "recompute"}), alone,
              "recomputed");
}

constexpr int kTokens = 11;
constexpr int kTokenWidth = 6;

/// Tokens to logits of the next token; the embedding is the output's weight.
Layers language_layers() {
  Layers layers;
  layers.add("embedding", [] { return torch::nn::Embedding(kTokens, kTokenWidth); });
  layers.add("hidden", [] {
    return torch::nn::Sequential(torch::nn::Linear(kTokenWidth, kTokenWidth), torch::nn::Tanh());
  });
  layers.add("head", [] {
    return torch::nn::Linear(torch::nn::LinearOptions(kTokenWidth, kTokens).bias(false));
  });
  layers.tie("head.weight", "embedding.weight");
  return layers;
}

PipelineBatch tokens_of(int step) {
  const auto tokens = (torch::arange(6 * 5) * 7 + 3 * step).remainder(kTokens).view({6, 5});
  return {tokens, (tokens + 1).remainder(kTokens)};
}

constexpr int kTokenSteps = 20;

/// Whole parameters of three stages, whose replicas train on the tokens of one step each.
NamedValues learn_tokens(const std::vector<torch::Tensor>& drawn, int replicas, int zero_stage) {
  std::map<std::string, torch::Tensor> whole;
  on_ranks(3 * replicas, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = replicas, .pipeline = 3});
    auto options = pipeline_options(mesh.pipeline(), "1f1b", 3);
    options.data = {.process_group = mesh.data(), .zero_stage = zero_stage};
    options.clip_norm = 0.5;
    Pipeline model(with_values(language_layers(), drawn), options);
    for (int step = 0; step < kTokenSteps; ++step) {
      const auto [inputs, targets] = tokens_of(replicas * step + mesh.position().data);
      model.train_step(inputs, targets);
    }
    for (const auto& [name, tensor] : gather_model(*world, model.pieces(false))) {
      whole[name] = tensor.flatten();
    }
  });
  return whole;
}

/// The same with plain torch, which has the weight once, and all replicas' tokens.
NamedValues learn_tokens_in_torch(const std::vector<torch::Tensor>& drawn, int replicas) {
  torch::nn::Embedding embedding(kTokens, kTokenWidth);
  torch::nn::Linear hidden(kTokenWidth, kTokenWidth);
  const std::vector<torch::Tensor> parameters{embedding->weight, hidden->weight, hidden->bias};
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].set_data(drawn[i].clone());
  const auto adam = pipeline_adam(parameters);
  for (int step = 0; step < kTokenSteps; ++step) {
    std::vector<torch::Tensor> all_inputs, all_targets;
    for (int replica = 0; replica < replicas; ++replica) {
      const auto batch = tokens_of(replicas * step + replica);
      all_inputs.push_back(batch.inputs);
      all_targets.push_back(batch.targets);
    }
    const auto inputs = torch::cat(all_inputs), targets = torch::cat(all_targets);
    const auto logits = torch::tanh(hidden(embedding(inputs))).matmul(embedding->weight.t());
    torch::nn::functional::cross_entropy(logits.view({-1, kTokens}), targets.view({-1})).backward();
    torch::nn::utils::clip_grad_norm_(parameters, 0.5);
    adam->step();
    adam->zero_grad();
  }
  return {{"embedding.weight", embedding->weight.detach().flatten()},
          {"head.weight", embedding->weight.detach().flatten()},
          {"hidden.0.weight", hidden->weight.detach().flatten()},
          {"hidden.0.bias", hidden->bias.detach().flatten()}};
}

TEST(TiedParameters, LearnAsOneParameterOfPlainTorch) {
  const auto drawn = drawn_parameters(language_layers());
  const auto expect_learned = [&](int replicas, int zero_stage) {
    const NamedValues learned = learn_tokens(drawn, replicas, zero_stage);
    for (const auto& [name, value] : learn_tokens_in_torch(drawn, replicas)) {
      ASSERT_TRUE(learned.contains(name)) << name;
      EXPECT_TRUE(torch::allclose(learned.at(name), value, 1e-4, 1e-5))
          << name << ", ZeRO " << zero_stage;
    }
  };
  expect_learned(1, 0);
  for (const int zero_stage : {0, 1, 2, 3}) expect_learned(2, zero_stage);
}

TEST(TiedParameters, ACheckpointContinuesInAnotherCut) {
  const TemporaryFolder folder;
  const auto run_part = [&](int ranks, bool tied, int from, int to) {
    TrainedParts trained;
    on_ranks(ranks, [&](const ProcessGroup& group) {
      const Layers layers = tied ? with_ties(shared_layers()) : shared_layers();
      Pipeline model(layers, pipeline_options(group, "1f1b", 4));
      if (from > 0) load_checkpoint(folder.path(), {.group = group, .model = model});
      for (int step = from; step < to; ++step) {
        const auto batch = pipeline_batch(7, 10 * step);
        model.train_step(batch.inputs, batch.targets);
      }
      save_checkpoint({.group = group, .model = model}, to, {.folder = folder.path()});
      trained.take(state_values(model));
    });
    return trained.values();
  };
  run_part(3, true, 0, 3);
  expect_same(run_part(2, true, 3, 6), train_tied({}), "3 stages, then 2");
  run_part(2, false, 6, 7);
  try {
    run_part(2, true, 7, 8);
    ADD_FAILURE() << "loaded a model without the tie";
  } catch (const Exception& e) {
    EXPECT_THAT(e.what(), HasSubstr("block0.0.weight and block2.0.weight are tied"));
  }
}

std::string refusal_of_ties(const Layers& layers, const std::string& schedule = "1f1b") {
  try {
    on_ranks(2, [&](const ProcessGroup& group) {
      const Pipeline model(layers, pipeline_options(group, schedule, 4));
    });
  } catch (const Exception& e) {
    return e.what();
  }
  return "";
}

TEST(TiedParameters, NamesWhatCannotBeTiedBeforeTraining) {
  EXPECT_THAT(refusal_of_ties(shared_layers().tie("block0.0.weight", "block1.2.weight")),
              HasSubstr("block0.0.weight is [12, 8] Float, and block1.2.weight is [8, 12] Float"));
  EXPECT_THAT(refusal_of_ties(shared_layers().tie("block0.0.weight", "block1.0.wieght")),
              HasSubstr("the tie of block0.0.weight and block1.0.wieght: no layer has a parameter "
                        "block1.0.wieght (did you mean block1.0.weight?)"));
  EXPECT_THAT(refusal_of_ties(with_ties(shared_layers()), "pipedream"), HasSubstr("on its own"));
  Layers frozen;
  frozen.add("a", [] { return torch::nn::Linear(2, 2); });
  frozen.add("b", [] {
    torch::nn::Linear linear(2, 2);
    linear->weight.set_requires_grad(false);
    return linear;
  });
  EXPECT_THAT(refusal_of_ties(frozen.tie("a.weight", "b.weight")), HasSubstr("Float, frozen"));
  EXPECT_THROW(Layers().tie("a.weight"), Exception);
  EXPECT_THROW(Layers().tie("a.weight", "a.weight"), Exception);
  EXPECT_THROW(Layers().tie("a.weight", "b.weight").tie("b.weight", "c.weight"), Exception);
}

/// A layer with a parameter of its caller.
struct BorrowedImpl : torch::nn::Module {
  explicit BorrowedImpl(const torch::Tensor& tensor)
      : weight(register_parameter("weight", tensor)) {}
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(Borrowed);

TEST(TiedParameters, OneTensorInTwoStagesIsRefused) {
  const torch::Tensor shared = torch::ones({5});
  Layers layers;
  for (const std::string name : {"a", "b"}) layers.add(name, [=] { return Borrowed(shared); });
  EXPECT_THAT(refusal_of_ties(layers),
              HasSubstr("a.weight and b.weight are one tensor, in stages 0 and 1"));
}

TEST(TiedParameters, OneTensorOfAStageIsNotTiedToItself) {
  const torch::Tensor shared = torch::ones({5});
  Layers layers;
  for (const std::string name : {"a", "b"}) layers.add(name, [=] { return Borrowed(shared); });
  layers.add("c", [] { return torch::nn::Linear(5, 3); });
  layers.tie("a.weight", "b.weight");
  EXPECT_THAT(refusal_of_ties(layers), HasSubstr("a.weight and b.weight are one tensor already"));
}

/// a and b are one tensor; the tie repeats c in d, or that tensor in c.
TEST(TiedParameters, ClippingCountsEachTensorOnce) {
  const auto inputs = pipeline_batch(6, 0).inputs, targets = torch::ones({6, 5});
  for (const bool ties_shared : {false, true}) {
    const torch::Tensor shared = torch::linspace(0.5, 1.5, 5), other = torch::linspace(1, 2, 5);
    const auto a = shared.clone().requires_grad_(), d = other.clone().requires_grad_();
    const auto c = ties_shared ? a : d;
    torch::mse_loss(inputs * a * a * c * d, targets).backward();
    torch::nn::utils::clip_grad_norm_(std::vector{a, d}, 0.05);
    Layers layers;
    for (const std::string name : {"a", "b"}) layers.add(name, [=] { return Borrowed(shared); });
    for (const std::string name : {"c", "d"})
      layers.add(name, [=] { return Borrowed(other.clone()); });
    ties_shared ? layers.tie("b.weight", "c.weight") : layers.tie("c.weight", "d.weight");
    on_ranks(1, [&](const ProcessGroup& group) {
      auto options = pipeline_options(group, "1f1b", 1);
      options.loss = squared_error_sum();
      options.clip_norm = 0.05;
      options.optimizer = [](std::vector<torch::Tensor> parameters) {
        return std::make_unique<torch::optim::SGD>(std::move(parameters), 1.0);
      };
      Pipeline model(layers, options);
      model.train_step(inputs, targets);
      model.finish();
    });
    EXPECT_TRUE(torch::allclose(shared.detach(), (a - a.grad()).detach(), 1e-4, 1e-6));
  }
}

TEST(TiedParameters, FrozenOnesShareTheirFirstValues) {
  TrainedParts trained;
  on_ranks(2, [&](const ProcessGroup& group) {
    Pipeline model(frozen_ties(), pipeline_options(group, "1f1b", 2));
    const auto batch = pipeline_batch(4, 0);
    model.train_step(batch.inputs, batch.targets);
    trained.take(state_values(model));
  });
  EXPECT_TRUE(torch::equal(trained.values().at("b.weight"), torch::ones({25})));
}

}  // namespace
}  // namespace gradwire::test
