#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/support/error_of.h"
#include "tests/train/pipeline_model.h"

/// Pipelines with skip connections, whose values pass directly between stages that are not
/// neighbours.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

/// Concatenates what it takes.
struct JoinImpl : torch::nn::Module {
  explicit JoinImpl(std::int64_t parts)
      : linear(register_module("linear", torch::nn::Linear(8 * parts, 8))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& skipped) {
    return torch::tanh(linear(torch::cat({x, skipped}, 1)));
  }

  torch::nn::Linear linear;
};
TORCH_MODULE(Join);

/// The same of two skip connections, of which one is wider.
struct JoinTwoImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& first,
                        const torch::Tensor& second) {
    return torch::tanh(linear(torch::cat({x, first, second}, 1)));
  }

  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(24, 8))};
};
TORCH_MODULE(JoinTwo);

/// Values that depend on the name alone: ranks are threads, and share torch's generator.
template <class Holder>
Holder filled(Holder module, double seed) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : all_parameters(*module)) {
    tensor.copy_(0.4 * torch::sin(torch::arange(tensor.numel()).view_as(tensor) + seed++));
  }
  return module;
}

/// A U-Net of dense layers: two skip connections cross, one of them ends where a third does.
Layers skip_layers() {
  Layers layers;
  layers.add("input", [] { return filled(torch::nn::Linear(5, 8), 1); });
  layers.add("down0", [] { return filled(torch::nn::Linear(8, 8), 2); });
  layers.add("down1", [] { return filled(torch::nn::Linear(8, 8), 3); });
  layers.add("middle", [] { return torch::nn::Tanh(); });
  layers.add("up1", [] { return filled(Join(2), 4); });
  layers.add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})); });
  layers.add("up0", [] { return filled(JoinTwo(), 5); });
  layers.add("output", [] { return filled(torch::nn::Linear(8, 3), 6); });
  layers.skip("down0", "up1");
  layers.skip("input", "up0");
  layers.skip("down0", "up0");
  return layers;
}

struct SkipCase {
  int ranks = 1;
  std::string schedule = "1f1b";
  std::vector<std::size_t> cut = {};
  int micro_batches = 4;
  bool recompute = false;
  int data = 1;
  int zero_stage = 0;
  std::string weights = "";
};

NamedValues train_with_skips(const SkipCase& what) {
  TrainedParts trained;
  on_ranks(what.ranks * what.data, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.data, .pipeline = what.ranks});
    Pipeline::Options options =
        pipeline_options(mesh.pipeline(), what.schedule, what.micro_batches);
    options.data = {.process_group = mesh.data(), .zero_stage = what.zero_stage};
    options.cut = what.cut;
    options.recompute = what.recompute;
    options.weights = what.weights;
    Pipeline model(skip_layers(), options);
    for (int step = 0; step < 4; ++step) {
      const auto batch = pipeline_batch(7, step);
      model.train_step(batch.inputs, batch.targets);
    }
    model.finish();
    if (what.zero_stage == 0) trained.take(state_values(model));
    const torch::Tensor outputs = model.evaluate(pipeline_batch(5, 9).inputs);
    if (outputs.defined() && mesh.position().data == 0) trained.take({{"outputs", outputs}});
  });
  return trained.values();
}

/// The same model in plain torch, with the mean over the batch.
NamedValues train_plain() {
  at::set_num_threads(1);
  torch::nn::Linear input = filled(torch::nn::Linear(5, 8), 1),
                    down0 = filled(torch::nn::Linear(8, 8), 2),
                    down1 = filled(torch::nn::Linear(8, 8), 3);
  Join up1 = filled(Join(2), 4);
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({8}));
  JoinTwo up0 = filled(JoinTwo(), 5);
  torch::nn::Linear output = filled(torch::nn::Linear(8, 3), 6);
  torch::nn::ModuleDict all;
  all->update({{"input", input.ptr()},
               {"down0", down0.ptr()},
               {"down1", down1.ptr()},
               {"up1", up1.ptr()},
               {"norm", norm.ptr()},
               {"up0", up0.ptr()},
               {"output", output.ptr()}});
  const auto forward = [&](const torch::Tensor& x) {
    const auto a = input(x), b = down0(a);
    return output(up0(norm(up1(torch::tanh(down1(b)), b)), a, b));
  };
  const auto optimizer = pipeline_adam(all->parameters());
  for (int step = 0; step < 4; ++step) {
    const auto batch = pipeline_batch(7, step);
    optimizer->zero_grad();
    torch::nn::functional::cross_entropy(forward(batch.inputs), batch.targets).backward();
    optimizer->step();
  }
  NamedValues values;
  for (const auto& [name, tensor] : all_parameters(*all)) values[name] = tensor.detach().flatten();
  values["outputs"] = forward(pipeline_batch(5, 9).inputs).detach();
  return values;
}

TEST(PipelineSkips, TrainAsPlainTorch) {
  const NamedValues actual = train_with_skips({});
  for (const auto& [name, value] : train_plain()) {
    EXPECT_TRUE(torch::allclose(actual.at(name), value, 1e-4, 1e-5)) << name;
  }
}

TEST(PipelineSkips, EveryScheduleAndCutHasTheBitsOfOneStage) {
  const NamedValues expected = train_with_skips({});
  for (const std::string schedule :
       {"gpipe", "1f1b", "zero_bubble", "zero_bubble_h1", "auto", "interleaved", "zero_bubble_v"}) {
    for (const int ranks : {2, 3, 4}) {
      const bool several = schedule == "interleaved" || schedule == "zero_bubble_v";
      if (several && ranks == 3) continue;  // Six stages need no other code than four and eight.
      expect_same(train_with_skips({.ranks = ranks, .schedule = schedule}), expected,
                  schedule + " on " + std::to_string(ranks));
    }
  }
  for (const std::vector<std::size_t>& cut :
       {std::vector<std::size_t>{2, 4, 2}, {1, 5, 2}, {4, 2, 2}}) {
    expect_same(train_with_skips({.ranks = 3, .cut = cut}), expected, std::to_string(cut[0]));
  }
}

TEST(PipelineSkips, AreRecomputed) {
  expect_same(train_with_skips({.ranks = 3, .schedule = "zero_bubble", .recompute = true}),
              train_with_skips({}), "recompute");
}

TEST(PipelineSkips, WorkWithReplicasAndZero) {
  const torch::Tensor expected = train_with_skips({}).at("outputs");
  for (const int zero : {0, 1, 2, 3}) {
    const auto actual =
        train_with_skips({.ranks = 2, .schedule = "zero_bubble", .data = 2, .zero_stage = zero});
    EXPECT_TRUE(torch::allclose(actual.at("outputs"), expected, 1e-3, 1e-4)) << zero;
  }
}

TEST(PipelineSkips, AsynchronousPipelinesHaveThem) {
  const auto values = train_with_skips({.ranks = 3, .schedule = "pipedream", .weights = "stash"});
  EXPECT_TRUE(torch::isfinite(values.at("outputs")).all().item<bool>());
}

TEST(PipelineSkips, PassDirectlyBetweenTheirStages) {
  std::vector<std::size_t> sent(4);
  on_ranks(4, [&](const ProcessGroup& group) {
    Pipeline::Options options = pipeline_options(group, "gpipe", 1);
    options.cut = {1, 2, 3, 2};
    Pipeline model(skip_layers(), options);
    const auto batch = pipeline_batch(10, 0);
    model.train_step(batch.inputs, batch.targets);  // Finds shapes.
    sent[static_cast<std::size_t>(group->getRank())] =
        payload_of(group, [&] { model.train_step(batch.inputs, batch.targets); });
  });
  // Ten samples of eight floats: input to stages 1 and 3, down0 to 2 and 3, and gradients back.
  constexpr std::size_t kTensor = 10 * 8 * 4;
  EXPECT_EQ(sent[0], 2 * kTensor);                  // Passing; input to up0.
  EXPECT_EQ(sent[1], (2 + 1) * kTensor + kTensor);  // Passing with down0, down0 to up0; back.
  EXPECT_EQ(sent[2], kTensor + 2 * kTensor);        // Passing; two gradients back.
  EXPECT_EQ(sent[3], 3 * kTensor);                  // Gradients of passing, input and down0.
}

TEST(PipelineSkips, NameWhatIsWrong) {
  const auto message = [](const std::string& from, const std::string& to) {
    return error_of([&] { skip_layers().skip(from, to); });
  };
  EXPECT_THAT(message("down7", "up0"), HasSubstr("skip(): no layer named 'down7'"));
  EXPECT_THAT(message("up0", "down0"), HasSubstr("from layer up0 to down0"));
  EXPECT_THAT(message("norm", "up0"), HasSubstr("expected a layer before the one before up0"));
  const std::string missing = error_of([] {
    on_ranks(1, [](const ProcessGroup& group) {
      Layers layers = skip_layers();
      layers.skip("input", "output");  // A Linear takes one tensor.
      Pipeline model(layers, pipeline_options(group, "1f1b", 1));
      const auto batch = pipeline_batch(2, 0);
      model.train_step(batch.inputs, batch.targets);
    });
  });
  EXPECT_THAT(missing, HasSubstr("layer output"));
}

}  // namespace
}  // namespace gradwire::test
