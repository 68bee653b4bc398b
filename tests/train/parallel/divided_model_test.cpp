#include <cmath>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/recipe/models.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/train/pipeline_model.h"

/// Models of a configuration, with layers that are divided over ranks, in pipelines with replicas.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

recipe::ModelConfig gpt() {
  // 31 characters are divided unevenly.
  return {.name = "gpt", .vocabulary = 31, .width = 16, .layers = 2, .heads = 4, .context = 6};
}

recipe::ModelConfig resnet() {
  return {.name = "resnet", .channels = 4, .blocks = 1, .groups = 2};
}

recipe::ModelConfig convnet() {
  return {
      .name = "convnet",
      .channels = 2,
      .hidden = 11,
  };
}

bool is_for_text(const recipe::ModelConfig& model) {
  return model.name == "gpt";
}

struct Layout {
  MeshDegrees mesh{.data = 1};
  int zero_stage = 0;
  std::optional<double> clip = {};
  std::string schedule = "1f1b";
  recipe::TensorPlan plan = {};
  recipe::SpatialConfig parts = {};

  int ranks() const { return mesh.data * mesh.pipeline * mesh.tensor * mesh.spatial; }
};

/// Initial values of the whole model.
NamedValues draw_values(const recipe::ModelConfig& config) {
  torch::manual_seed(5);
  const Layers layers = recipe::make_layers(config);
  NamedValues values;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto layer = layers.make(i);
    for (const auto& [name, tensor] : all_parameters(*layer.ptr())) {
      // Some are zero at first, and would hide errors.
      values[layers.name(i) + "." + name] =
          tensor.detach() + 0.05 * torch::sin(torch::arange(tensor.numel()).view_as(tensor));
    }
  }
  return values;
}

/// Drawn before ranks start, which are threads and share the generator.
const NamedValues& initial_values(const recipe::ModelConfig& config) {
  static const std::map<std::string, NamedValues> all = [] {
    std::map<std::string, NamedValues> drawn;
    for (const auto& each : {gpt(), resnet(), convnet()}) drawn[each.name] = draw_values(each);
    return drawn;
  }();
  return all.at(config.name);
}

/// Tests run in float64, so that layouts agree to many digits.
class DividedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    initial_values(gpt());
  }
  void TearDown() override { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); }
};

/// The same layers with these values.
Layers with_values(const Layers& layers, const NamedValues& values) {
  Layers valued;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string prefix = layers.name(i) + ".";
    valued.add_layer(layers.name(i), [layers, values, i, prefix] {
      torch::nn::AnyModule layer = layers.make(i);
      const torch::NoGradGuard no_grad;
      const auto boxes = parameter_boxes(*layer.ptr());
      for (const auto& [name, tensor] : all_parameters(*layer.ptr())) {
        torch::Tensor value = values.at(prefix + name);
        if (boxes.contains(name)) {
          const TensorPart& part = boxes.at(name).part;
          value = view_of_box(value.view(part.view), part.box).reshape(tensor.sizes());
        }
        tensor.copy_(value);
      }
      return layer;
    });
  }
  for (const auto& tie : layers.ties()) valued.tie_all(tie);
  return valued;
}

recipe::LayerGroups groups_of(const Layout& layout, const ParallelMesh& mesh) {
  recipe::LayerGroups groups{.plan = layout.plan,
                             .parts = {layout.parts.height, layout.parts.width}};
  if (mesh.tensor()->getSize() > 1) groups.tensor = mesh.tensor();
  if (mesh.spatial()->getSize() > 1) groups.spatial = mesh.spatial();
  return groups;
}

std::unique_ptr<Pipeline> make(const recipe::ModelConfig& config, const Layout& layout,
                               const ParallelMesh& mesh) {
  const recipe::LayerGroups groups = groups_of(layout, mesh);
  Pipeline::Options options = pipeline_options(mesh.pipeline(), layout.schedule, 2);
  options.data = {.process_group = mesh.data(), .zero_stage = layout.zero_stage};
  options.tensor = mesh.tensor();
  options.spatial = mesh.spatial();
  options.clip_norm = layout.clip;
  options.loss = recipe::likelihood_sum(config, groups);
  return std::make_unique<Pipeline>(
      with_values(recipe::make_layers(config, groups), initial_values(config)), options);
}

/// Eight samples of a step, divided over the replicas.
PipelineBatch batch_of(const recipe::ModelConfig& config, const ParallelMesh& mesh, int step) {
  constexpr std::int64_t kSamples = 8;
  PipelineBatch batch;
  if (is_for_text(config)) {
    const auto index = torch::arange(kSamples * 7).view({kSamples, 7});
    const auto text = (index * index + 3 * index + step).remainder(config.vocabulary);
    batch = {text.narrow(1, 0, 6).contiguous(), text.narrow(1, 1, 6).contiguous()};
  } else {
    const auto index = torch::arange(kSamples * 784, torch::kFloat64).view({kSamples, 1, 28, 28});
    batch = {torch::sin(index * 0.37 + step), (torch::arange(kSamples) + step).remainder(10)};
  }
  const std::int64_t own = kSamples / mesh.data()->getSize();
  const std::int64_t first = own * mesh.data()->getRank();
  return {batch.inputs.narrow(0, first, own), batch.targets.narrow(0, first, own)};
}

void train_steps(Pipeline& model, const recipe::ModelConfig& config, const ParallelMesh& mesh,
                 int from, int to) {
  for (int step = from; step < to; ++step) {
    const auto batch = batch_of(config, mesh, step);
    model.train_step(batch.inputs, batch.targets);
  }
  model.finish();
}

/// Trains in several layouts, one after the other, through checkpoints. Returns all values of the
/// last one, whole.
NamedValues train_in(const recipe::ModelConfig& config, const std::vector<Layout>& layouts,
                     int steps_each) {
  const TemporaryFolder folder;
  int step = 0;
  for (const Layout& layout : layouts) {
    on_ranks(layout.ranks(), [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, layout.mesh);
      const auto model = make(config, layout, mesh);
      if (step > 0) load_checkpoint(folder.path(), {.group = world, .model = *model});
      train_steps(*model, config, mesh, step, step + steps_each);
      save_checkpoint({.group = world, .model = *model}, step + steps_each,
                      {.folder = folder.path()});
    });
    step += steps_each;
  }
  NamedValues values;
  on_ranks(1, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {});
    const auto model = make(config, {}, mesh);
    load_checkpoint(folder.path(), {.group = world, .model = *model});
    values = state_values(*model);
  });
  return values;
}

void expect_near(const NamedValues& actual, const NamedValues& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, value] : expected) {
    // The square root of Adam's second moment enlarges differences of gradients that vanish.
    EXPECT_TRUE(
        torch::allclose(actual.at(name).to(torch::kFloat64), value.to(torch::kFloat64), 1e-6, 1e-7))
        << what << ": " << name << " differs by "
        << (actual.at(name) - value).abs().max().item<double>();
  }
}

void expect_trains_alike(const recipe::ModelConfig& config, const std::vector<Layout>& layouts) {
  const NamedValues expected = train_in(config, {{}}, 3);
  for (const Layout& layout : layouts) {
    expect_near(train_in(config, {layout}, 3), expected, text_of(layout.mesh));
  }
}

constexpr MeshDegrees kTensor{.data = 1, .tensor = 2};
constexpr MeshDegrees kAll{.data = 2, .pipeline = 2, .tensor = 2};

TEST_F(DividedModel, GptTrainsAsOneProcessInEveryMesh) {
  expect_trains_alike(gpt(), {{.mesh = kTensor},
                              {.mesh = {.data = 1, .tensor = 4}},
                              {.mesh = {.data = 2, .tensor = 2}},
                              {.mesh = {.data = 1, .pipeline = 2, .tensor = 2}},
                              {.mesh = kAll, .schedule = "zero_bubble"},
                              {.mesh = kTensor, .plan = {{"embedding", "block0.mlp", "head"}}}});
}

TEST_F(DividedModel, ResnetTrainsAsOneProcessInEveryMesh) {
  expect_trains_alike(resnet(),
                      {{.mesh = kTensor},
                       {.mesh = {.data = 2, .tensor = 2}},
                       {.mesh = {.data = 1, .pipeline = 2, .tensor = 2}, .schedule = "zero_bubble"},
                       {.mesh = {.data = 2, .spatial = 2}, .parts = {2, 1}},
                       {.mesh = {.data = 1, .spatial = 4}, .parts = {2, 2}},
                       {.mesh = {.data = 1, .pipeline = 2, .spatial = 2}, .parts = {1, 2}}});
}

TEST_F(DividedModel, ConvnetTrainsAsOneProcessInEveryMesh) {
  expect_trains_alike(convnet(), {{.mesh = kTensor},
                                  {.mesh = {.data = 1, .pipeline = 2, .tensor = 2}},
                                  {.mesh = {.data = 1, .spatial = 3}, .parts = {3, 1}}});
}

TEST_F(DividedModel, ClipsByTheNormOfAllParts) {
  const NamedValues expected = train_in(gpt(), {{.clip = 0.05}}, 3);
  for (const int zero : {0, 1, 2}) {
    expect_near(train_in(gpt(), {{.mesh = kAll, .zero_stage = zero, .clip = 0.05}}, 3), expected,
                std::to_string(zero));
  }
  const NamedValues images = train_in(resnet(), {{.clip = 0.05}}, 3);
  expect_near(
      train_in(resnet(), {{.mesh = {.data = 1, .spatial = 2}, .clip = 0.05, .parts = {2, 1}}}, 3),
      images, "spatial");
}

TEST_F(DividedModel, TiesDividedParameters) {
  recipe::ModelConfig tied = gpt();
  tied.tie_word_embeddings = true;
  const NamedValues expected = train_in(tied, {{.clip = 0.05}}, 3);
  for (const MeshDegrees& mesh :
       {kTensor, kAll, MeshDegrees{.data = 1, .pipeline = 2, .tensor = 2}}) {
    expect_near(train_in(tied, {{.mesh = mesh, .clip = 0.05}}, 3), expected, text_of(mesh));
  }
  for (const int zero : {1, 2, 3}) {
    expect_near(train_in(tied, {{.mesh = kAll, .zero_stage = zero, .clip = 0.05}}, 3), expected,
                fmt::format("ZeRO {}", zero));
  }
}

TEST_F(DividedModel, ZeroShardsItsParts) {
  const NamedValues expected = train_in(gpt(), {{}}, 3);
  for (const int zero : {1, 2, 3}) {
    expect_near(train_in(gpt(), {{.mesh = {.data = 2, .tensor = 2}, .zero_stage = zero}}, 3),
                expected, std::to_string(zero));
  }
}

TEST_F(DividedModel, ContinuesInAnyOtherLayout) {
  const NamedValues expected = train_in(gpt(), {{}, {}, {}, {}}, 1);
  expect_near(train_in(gpt(),
                       {{.mesh = kTensor},
                        {.mesh = {.data = 2, .pipeline = 2}, .zero_stage = 1},
                        {.mesh = {.data = 1, .tensor = 4}},
                        {.mesh = kAll, .zero_stage = 3}},
                       1),
              expected, "gpt");
  const NamedValues images = train_in(resnet(), {{}, {}}, 1);
  expect_near(
      train_in(resnet(), {{.mesh = kTensor}, {.mesh = {.data = 1, .spatial = 2}, .parts = {1, 2}}},
               1),
      images, "resnet");
}

/// Parameters that no rank divides keep the same bits on all ranks, however uneven the parts are.
TEST_F(DividedModel, ReplicatedParametersKeepTheSameBits) {
  const Layout layout{.mesh = {.data = 3, .tensor = 2}, .clip = 0.1};
  std::mutex mutex;
  std::map<std::string, std::vector<torch::Tensor>> seen;
  on_ranks(layout.ranks(), [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, layout.mesh);
    auto config = gpt();
    const auto model = make(config, layout, mesh);
    for (int step = 0; step < 4; ++step) {
      const auto batch = batch_of(config, mesh, step);
      model->train_step(batch.inputs, batch.targets);
    }
    model->finish();
    for (const TensorPiece& piece : model->pieces(false)) {
      if (piece.part) continue;
      const std::lock_guard lock(mutex);
      seen[piece.name].push_back(piece.data.clone());
    }
  });
  EXPECT_TRUE(seen.contains("block0.norm1.weight"));
  EXPECT_TRUE(seen.contains("optimizer.exp_avg.embedding.position"));
  EXPECT_FALSE(seen.contains("head.output.weight"));
  for (const auto& [name, values] : seen) {
    for (const auto& value : values) EXPECT_TRUE(torch::equal(value, values[0])) << name;
  }
}

TEST_F(DividedModel, EvaluatesOnEveryRankWithTheLastStage) {
  torch::Tensor expected;
  on_ranks(1, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {});
    expected = make(gpt(), {}, mesh)->evaluate(batch_of(gpt(), mesh, 0).inputs);
  });
  const Layout layout{.mesh = {.data = 1, .pipeline = 2, .tensor = 2}};
  on_ranks(4, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, layout.mesh);
    const auto output = make(gpt(), layout, mesh)->evaluate(batch_of(gpt(), mesh, 0).inputs);
    ASSERT_EQ(output.defined(), mesh.position().pipeline == 1);
    EXPECT_TRUE(!output.defined() || torch::allclose(output, expected, 1e-9, 1e-9));
  });
}

TEST_F(DividedModel, CodecsNeedPartsOfEqualSize) {
  const auto train_with = [](std::int64_t vocabulary) {
    recipe::ModelConfig config = gpt();
    config.vocabulary = vocabulary;
    on_ranks(4, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, {.data = 2, .tensor = 2});
      const recipe::LayerGroups groups{.tensor = mesh.tensor()};
      Pipeline::Options options = pipeline_options(mesh.pipeline(), "1f1b", 1);
      options.data = {.process_group = mesh.data(), .options = {.codec = "qsgd"}};
      options.tensor = mesh.tensor();
      options.loss = recipe::likelihood_sum(config, groups);
      Pipeline model(recipe::make_layers(config, groups), options);
    });
  };
  EXPECT_THAT(error_of([&] { train_with(31); }), HasSubstr("embedding.character.weight [16, 16]"));
  EXPECT_EQ(error_of([&] { train_with(30); }), "no error");
}

TEST_F(DividedModel, LambNeedsWholeParameters) {
  const auto make_with_lamb = [] {
    on_ranks(2, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, kTensor);
      Pipeline::Options options = pipeline_options(mesh.pipeline(), "1f1b", 1);
      options.tensor = mesh.tensor();
      options.optimizer = [](std::vector<torch::Tensor> parameters) {
        return std::make_unique<Lamb>(std::move(parameters), LambOptions(0.01));
      };
      const Pipeline model(recipe::make_layers(gpt(), groups_of({}, mesh)), options);
    });
  };
  EXPECT_THAT(error_of(make_with_lamb), HasSubstr("is divided over ranks: use another optimizer"));
}

TEST_F(DividedModel, NeedsTheGroupThatDividesItsLayers) {
  std::string message;
  try {
    on_ranks(2, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, kTensor);
      Pipeline::Options options = pipeline_options(mesh.pipeline(), "1f1b", 1);
      const Pipeline model(recipe::make_layers(gpt(), groups_of({}, mesh)), options);
    });
  } catch (const Exception& e) {
    message = e.what();
  }
  EXPECT_THAT(message, HasSubstr(".tensor = mesh.tensor()"));
}

}  // namespace
}  // namespace gradwire::test
