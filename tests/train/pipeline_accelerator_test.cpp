#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/parallel_mesh.h"
#include "tests/support/torch/queue_device.h"
#include "tests/train/pipeline_model.h"

/// Stages on an accelerator.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

struct Stages {
  std::string schedule = "1f1b";
  int pipeline = 2;
  int data = 1;
  int zero_stage = 0;
  bool recompute = false;
  std::string codec = "none";
};

void PrintTo(const Stages& stages, std::ostream* out) {
  *out << fmt::format("{}, {} x {} ranks, ZeRO stage {}, recompute {}, codec {}", stages.schedule,
                      stages.pipeline, stages.data, stages.zero_stage, stages.recompute,
                      stages.codec);
}

Layers plain_layers() {
  Layers layers;
  layers.add("input", [] { return torch::nn::Linear(5, 8); });
  for (int i = 0; i < 4; ++i) {
    layers.add(fmt::format("block{}", i),
               [] { return torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::GELU()); });
  }
  layers.add("output", [] { return torch::nn::Linear(8, 3); });
  static const std::vector<torch::Tensor> drawn = drawn_parameters(layers);
  return with_values(layers, drawn);
}

/// The same layers, made on a device.
Layers on_device(const Layers& plain, int device) {
  Layers moved;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    moved.add_layer(plain.name(i), [plain, i, device] {
      torch::nn::AnyModule layer = plain.make(i);
      for (const auto& [name, tensor] : all_parameters(*layer.ptr())) {
        move_to_queue_device(tensor, device);
      }
      return layer;
    });
  }
  for (const auto& names : plain.ties()) moved.tie_all(names);
  return moved;
}

/// Parameters and optimizer states on the host.
NamedValues host_values(Pipeline& model) {
  NamedValues values;
  for (const TensorPiece& piece : model.pieces(false)) {
    values[piece.name + fmt::format(" from {}", piece.begin)] = to_host(piece.data).clone();
  }
  return values;
}

NamedValues train(const Stages& what, const Layers& layers, bool accelerator) {
  TrainedParts trained;
  on_ranks(what.pipeline * what.data, [&](const ProcessGroup& group) {
    ParallelMesh mesh(group, {.data = what.data, .pipeline = what.pipeline});
    auto options = pipeline_options(mesh.pipeline(), what.schedule, 3);
    options.data = {.process_group = mesh.data(), .zero_stage = what.zero_stage};
    options.recompute = what.recompute;
    options.activation_codec = {what.codec, what.codec};
    if (accelerator) to_queue_device(at::empty({0}), group->getRank());  // Makes it current.
    Pipeline model(accelerator ? on_device(layers, group->getRank()) : layers, options);
    for (int step = 0; step < 4; ++step) {
      const auto batch = pipeline_batch(7, step);
      model.train_step(batch.inputs, batch.targets);
    }
    trained.take(host_values(model));
  });
  return trained.values();
}

struct PipelineOnAnAccelerator : ::testing::TestWithParam<Stages> {
  PipelineOnAnAccelerator() { install_queue_device(); }
};

/// The device computes with the CPU's kernels, but on copies, whose strides can differ: then a
/// matrix product adds in another order.
TEST_P(PipelineOnAnAccelerator, TrainsAsTheCpu) {
  const auto expected = train(GetParam(), plain_layers(), false);
  const auto actual = train(GetParam(), plain_layers(), true);
  const double tolerance = GetParam().codec == "none" ? 1e-4 : 0.02;
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_TRUE(torch::allclose(actual.at(name), value, tolerance, tolerance)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, PipelineOnAnAccelerator,
    ::testing::Values(Stages{}, Stages{.pipeline = 1}, Stages{.schedule = "zero_bubble"},
                      Stages{.schedule = "zero_bubble_v"}, Stages{.schedule = "2bw"},
                      Stages{.recompute = true}, Stages{.codec = "int8"}, Stages{.data = 2},
                      Stages{.data = 2, .zero_stage = 1}, Stages{.data = 2, .zero_stage = 3}));

TEST_F(PipelineOnAnAccelerator, TiesParametersOfStagesOnTwoDevices) {
  Layers layers = plain_layers();
  layers.tie("block0.0.weight", "block3.0.weight");
  const auto expected = train({.pipeline = 2, .data = 2, .zero_stage = 1}, layers, false);
  const auto actual = train({.pipeline = 2, .data = 2, .zero_stage = 1}, layers, true);
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(torch::allclose(actual.at(name), value, 1e-4, 1e-4)) << name;
  }
}

/// Layers that draw from the generator of their input's device, as dropout does.
Layers drawing_layers() {
  Layers layers;
  const Layers plain = plain_layers();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    layers.add_layer(plain.name(i), [plain, i] { return plain.make(i); });
    layers.add(fmt::format("draw{}", i), [] {
      return torch::nn::Functional([](const torch::Tensor& x) {
        auto generator = at::globalContext().defaultGenerator(x.device());
        return x * torch::empty(x.sizes()).uniform_(0, 1, generator).to(x.device());
      });
    });
  }
  return layers;
}

TEST_F(PipelineOnAnAccelerator, RandomNumbersAreTheSameInEveryCut) {
  const auto one = train({.pipeline = 1}, drawing_layers(), true);
  expect_same(train({.pipeline = 3}, drawing_layers(), true), one, "three stages");
  expect_same(train({.recompute = true}, drawing_layers(), true), one, "recomputed");
}

TEST_F(PipelineOnAnAccelerator, EvaluatesInputsOfTheHost) {
  on_ranks(2, [&](const ProcessGroup& group) {
    to_queue_device(at::empty({0}), group->getRank());
    Pipeline model(on_device(plain_layers(), group->getRank()), pipeline_options(group, "1f1b", 3));
    Pipeline on_cpu(plain_layers(), pipeline_options(group, "1f1b", 3));
    const auto batch = pipeline_batch(7, 0);
    const auto expected = on_cpu.evaluate(batch.inputs);
    const auto output = model.evaluate(batch.inputs);
    ASSERT_EQ(output.defined(), group->getRank() == 1);
    EXPECT_TRUE(!output.defined() || to_host(output).equal(expected));
  });
}

TEST_F(PipelineOnAnAccelerator, AStageOnTwoDevicesIsRefused) {
  std::string error;
  on_ranks(1, [&](const ProcessGroup& group) {
    Layers layers;
    layers.add("host", [] { return torch::nn::Linear(5, 3); });
    layers.add("device", [] {
      torch::nn::Linear made(3, 3);
      for (auto& parameter : made->parameters()) move_to_queue_device(parameter, 0);
      return made;
    });
    try {
      const Pipeline model(layers, pipeline_options(group, "1f1b", 2));
    } catch (const Exception& e) {
      error = e.what();
    }
  });
  EXPECT_THAT(error, HasSubstr("host.weight is on cpu, but device.weight on queue:0: move all "
                               "layers of a stage to one device"));
}

}  // namespace
}  // namespace gradwire::test
