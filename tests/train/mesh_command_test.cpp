#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

/// `gradwire train` with every kind of mesh, in processes.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Settings = std::vector<std::string>;

struct MeshCommand : ::testing::Test {
  MeshCommand() {
    write_image_data(folder.path(), 130, 21);
    std::string text;
    for (int i = 0; i < 1200; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 23);
    write_file(folder / "text", text);
    write_file(folder / "gpt.json", R"({
      "data": {"name": "text", "context": 8}, "batch_size": 16, "epochs": 1,
      "model": {"name": "gpt", "layers": 2, "width": 16, "heads": 4, "vocabulary": 257},
      "optimizer": {"name": "adam", "learning_rate": 0.001},
      "gradient_clipping": 0.5, "checkpoint_every": 4})");
    write_file(folder / "resnet.json", R"({
      "batch_size": 16, "epochs": 1,
      "model": {"name": "resnet", "channels": 4, "groups": 2, "blocks": 1},
      "optimizer": {"name": "sgd", "learning_rate": 0.01},
      "checkpoint_every": 4})");
  }

  Finished train(const std::string& model, int ranks, const Settings& settings,
                 const std::string& output = "", const Settings& options = {}) {
    Settings command{own_program().parent_path() / "gradwire",
                     "train",
                     folder / (model + ".json"),
                     "--data",
                     (model == "gpt" ? folder / "text" : folder.path()).string(),
                     "-n",
                     std::to_string(ranks)};
    if (!output.empty()) command.insert(command.end(), {"--output", folder / output});
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    command.insert(command.end(), options.begin(), options.end());
    return run(command);
  }

  std::vector<double> losses(const std::string& output) {
    std::ifstream stream(folder / output / "run.json");
    return nlohmann::json::parse(stream)["steps"]["loss"].get<std::vector<double>>();
  }

  /// Trains, and compares losses and the model's file with those of one rank.
  void expect_trains_alike(const std::string& model, const std::string& layout, int ranks,
                           const Settings& settings) {
    const auto finished = train(model, ranks, settings, layout);
    ASSERT_EQ(finished.status, 0) << layout << ": " << finished.output;
    if (!std::filesystem::exists(folder / "one")) {
      const auto alone = train(model, 1, {}, "one");
      ASSERT_EQ(alone.status, 0) << alone.output;
    }
    expect_alike(layout, "one");
  }

  void expect_alike(const std::string& layout, const std::string& other) {
    const auto found = losses(layout);
    const auto expected = losses(other);
    ASSERT_EQ(found.size(), expected.size()) << layout;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 2e-3) << layout << ", step " << i;
    }
    const auto first = load_safetensors(folder / layout / "model.safetensors").tensors;
    const auto second = load_safetensors(folder / other / "model.safetensors").tensors;
    ASSERT_EQ(first.size(), second.size()) << layout;
    for (const auto& [name, tensor] : second) {
      ASSERT_TRUE(first.contains(name)) << layout << ": " << name;
      EXPECT_EQ(first.at(name).sizes(), tensor.sizes()) << layout << ": " << name;
      EXPECT_TRUE(torch::allclose(first.at(name), tensor, 2e-2, 2e-3)) << layout << ": " << name;
    }
  }

  TemporaryFolder folder;
};

TEST_F(MeshCommand, TrainsAGptInEveryMesh) {
  expect_trains_alike("gpt", "d2t2", 4, {"mesh.tensor=2"});
  expect_trains_alike("gpt", "t2p2", 4, {"mesh.tensor=2", "mesh.pipeline=2"});
  expect_trains_alike("gpt", "d2p2", 4, {"mesh.pipeline=2", "zero.stage=2"});
  expect_trains_alike("gpt", "d2p2t2", 8,
                      {"mesh.pipeline=2", "mesh.tensor=2", "pipeline.schedule=zero_bubble",
                       "pipeline.micro_batches=4", "zero.stage=1"});
  expect_trains_alike("gpt", "replicated", 2,
                      {"mesh.tensor=2", R"(tensor={"plan": {"head": "replicated"}})"});
}

TEST_F(MeshCommand, TrainsParameterGroupsInEveryMesh) {
  const Settings groups{"optimizer.weight_decay=0.3",
                        R"(optimizer.groups=[{"match": ["*.bias", "*norm*"], "weight_decay": 0},)"
                        R"( {"match": "head.*", "learning_rate": 0.02}])"};
  const auto with_groups = [&](Settings settings) {
    settings.insert(settings.end(), groups.begin(), groups.end());
    return settings;
  };
  ASSERT_EQ(train("gpt", 1, groups, "one").status, 0);
  ASSERT_EQ(train("gpt", 1, {groups[0]}, "without").status, 0);
  const auto head = [&](const std::string& run) {
    return load_safetensors(folder / run / "model.safetensors").tensors.at("head.output.weight");
  };
  EXPECT_FALSE(torch::allclose(head("one"), head("without"), 2e-2, 2e-3));
  expect_trains_alike("gpt", "p2", 2, with_groups({"mesh.pipeline=2"}));
  expect_trains_alike("gpt", "t2z2", 4, with_groups({"mesh.tensor=2", "zero.stage=2"}));
  expect_trains_alike("gpt", "p2z3", 4, with_groups({"mesh.pipeline=2", "zero.stage=3"}));

  const auto shown = train("gpt", 2, groups, "", {"--dry-run"});
  EXPECT_THAT(shown.output, AllOf(HasSubstr("have its own settings;"),
                                  HasSubstr("those of *.bias, *norm*; 1 those of head.*")));
  for (const Settings& options : {Settings{}, Settings{"--dry-run"}}) {
    const auto refused =
        train("gpt", 1, {R"(optimizer.groups=[{"match": "haed.*"}])"}, "", options);
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.output, AllOf(HasSubstr("optimizer.groups[0]"), HasSubstr("haed.*"),
                                      HasSubstr("head.output.weight")));
  }
}

double mean_of(const std::vector<double>& losses, std::size_t first, std::size_t count) {
  const auto begin = losses.begin() + static_cast<std::ptrdiff_t>(first);
  return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), 0.0) /
         static_cast<double>(count);
}

TEST_F(MeshCommand, TrainsReplicasOfAsynchronousPipelines) {
  const Settings base{"mesh.data=2", "mesh.pipeline=2", "pipeline.micro_batches=4",
                      "gradient_clipping=0", "epochs=6"};
  for (const std::string schedule : {"pipedream", "2bw"}) {
    Settings settings = base;
    settings.push_back("pipeline.schedule=" + schedule);
    const auto plan = train("gpt", 4, settings, "", {"--dry-run"});
    ASSERT_EQ(plan.status, 0) << plan.output;
    EXPECT_THAT(plan.output, HasSubstr("by the mean gradient of 2 replicas"));
    const auto finished = train("gpt", 4, settings, schedule);
    ASSERT_EQ(finished.status, 0) << finished.output;
    const auto found = losses(schedule);
    ASSERT_GT(found.size(), 20);
    EXPECT_LT(mean_of(found, found.size() - 5, 5), mean_of(found, 0, 5) - 0.5) << schedule;
  }
  // Goes on with one replica.
  const Settings more{"mesh.pipeline=2", "pipeline.schedule=2bw", "gradient_clipping=0", "epochs=7",
                      "resume=auto"};
  const auto resumed = train("gpt", 2, more, "2bw");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_LT(losses("2bw").back(), losses("pipedream").front());
}

TEST_F(MeshCommand, TiesEmbeddingsWithZero) {
  const auto train_tied = [&](const std::string& output, Settings settings) {
    settings.insert(settings.end(), {"mesh.pipeline=2", "model.tie_word_embeddings=true"});
    const auto finished = train("gpt", 4, settings, output);
    ASSERT_EQ(finished.status, 0) << output << ": " << finished.output;
    const auto model = load_safetensors(folder / output / "model.safetensors").tensors;
    EXPECT_TRUE(model.at("embedding.character.weight").equal(model.at("head.output.weight")));
  };
  const Settings plain{"gradient_clipping=0", "pipeline.micro_batches=1"};
  const Settings clipped{"gradient_clipping=0.5", "pipeline.micro_batches=2"};
  train_tied("plain", plain);
  train_tied("clipped", clipped);
  for (const std::string stage : {"1", "3"}) {
    const auto with_zero = [&](Settings settings) {
      settings.push_back("zero.stage=" + stage);
      return settings;
    };
    train_tied("plain" + stage, with_zero(plain));
    EXPECT_EQ(losses("plain" + stage), losses("plain")) << stage;
    train_tied("clipped" + stage, with_zero(clipped));
    expect_alike("clipped" + stage, "clipped");
  }
}

TEST_F(MeshCommand, TrainsAResnetInEveryMesh) {
  expect_trains_alike(
      "resnet", "d2p2", 4,
      {"mesh.pipeline=2", "pipeline.micro_batches=2", "pipeline.schedule=zero_bubble"});
  expect_trains_alike("resnet", "d2t2", 4, {"mesh.tensor=2"});
  expect_trains_alike("resnet", "t2p2", 4,
                      {"mesh.tensor=2", "mesh.pipeline=2", "pipeline.micro_batches=2"});
  expect_trains_alike("resnet", "d2s2", 4, {"mesh.spatial=2"});
  expect_trains_alike("resnet", "d2p2t2", 8,
                      {"mesh.tensor=2", "mesh.pipeline=2", "pipeline.micro_batches=2"});
}

TEST_F(MeshCommand, ResumesInAnotherMesh) {
  const auto with = [&](const std::string& output, int ranks, Settings settings) {
    const auto finished = train("gpt", ranks, settings, output);
    ASSERT_EQ(finished.status, 0) << finished.output;
  };
  with("one", 1, {"epochs=3"});
  with("there", 4, {"mesh.tensor=2", "zero.stage=1"});
  with("there", 2, {"mesh.pipeline=2", "epochs=2", "resume=auto"});
  with("there", 4, {"mesh.tensor=4", "epochs=3", "resume=auto"});
  const auto expected = losses("one");
  const auto found = losses("there");
  ASSERT_FALSE(found.empty());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[expected.size() - found.size() + i], 2e-3) << i;
  }
}

/// A pipeline's ranks have one generator's state, which belongs to no rank of replicas.
TEST_F(MeshCommand, ReplicasResumedFromAPipelineDrawDifferentNumbers) {
  ASSERT_EQ(train("gpt", 2, {"mesh.pipeline=2", "model.dropout=0.1"}, "there").status, 0);
  const auto resumed = train("gpt", 2, {"model.dropout=0.1", "epochs=2", "resume=auto"}, "there");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, AllOf(HasSubstr("of 2 ranks: pipeline 2, in stages, on 2 ranks"),
                                    HasSubstr("reset: random numbers")));
  std::filesystem::path newest;
  for (const auto& each : std::filesystem::directory_iterator(folder / "there" / "checkpoints")) {
    newest = std::max(newest, each.path());
  }
  std::vector<torch::Tensor> states;
  for (const auto& file : std::filesystem::directory_iterator(newest)) {
    if (file.path().extension() != ".safetensors") continue;
    states.push_back(load_safetensors(file.path()).tensors.at("rank:random"));
  }
  ASSERT_EQ(states.size(), 2);
  EXPECT_FALSE(torch::equal(states[0], states[1]));
}

/// The checkpoint's boxes are whole tensors for other programs.
TEST_F(MeshCommand, OtherProgramsReadDividedCheckpoints) {
  const auto finished = train("gpt", 4, {"mesh.tensor=2", "zero.stage=1"}, "out");
  ASSERT_EQ(finished.status, 0) << finished.output;
  const auto program = own_program().parent_path() / "gradwire";
  const auto consolidated =
      run({program, "checkpoint", "consolidate", folder / "out", "-o", folder / "whole"});
  ASSERT_EQ(consolidated.status, 0) << consolidated.output;
  const auto expected = load_safetensors(folder / "out" / "model.safetensors").tensors;
  const auto found = load_safetensors(folder / "whole").tensors;
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;

#ifdef GRADWIRE_PYTHON_PATH  // The folder of the built Python package.
  const char* const python = std::getenv("GRADWIRE_PYTHON");
  ASSERT_NE(python, nullptr) << "the build sets GRADWIRE_PYTHON to a Python with PyTorch";
  const auto read = run({python, GRADWIRE_SOURCE "/tests/train/programs/sum_checkpoint.py",
                         folder / "out" / "checkpoints"},
                        {{"PYTHONPATH", GRADWIRE_PYTHON_PATH}});
  ASSERT_EQ(read.status, 0) << read.output;
  for (const auto& [name, tensor] : expected) {
    const auto at = read.output.find(name + " ");
    ASSERT_NE(at, std::string::npos) << name << " in " << read.output;
    EXPECT_NEAR(std::stod(read.output.substr(at + name.size() + 1)),
                tensor.to(torch::kFloat64).square().sum().item<double>(), 1e-9)
        << name;
  }
#endif
}

TEST_F(MeshCommand, ADryRunSaysWhatIsDivided) {
  const auto gpt =
      train("gpt", 4, {"mesh.tensor=2", R"(tensor={"plan": {"embedding": "replicated"}})"}, "",
            {"--dry-run"});
  ASSERT_EQ(gpt.status, 0) << gpt.output;
  EXPECT_THAT(gpt.output, AllOf(HasSubstr("data 2 x tensor 2"),
                                HasSubstr("tensor 2 divides block0.attention, block0.mlp"),
                                HasSubstr("every rank has embedding"), HasSubstr("all-reduces")));
  const auto images = train("resnet", 4, {"mesh.spatial=2", "spatial.width=2"}, "", {"--dry-run"});
  ASSERT_EQ(images.status, 0) << images.output;
  EXPECT_THAT(images.output, HasSubstr("images in 1 x 2 parts"));
}

TEST_F(MeshCommand, RefusesWhatCannotBeDivided) {
  const auto refusal = [&](const std::string& model, const Settings& settings) {
    const auto finished = train(model, 4, settings);
    EXPECT_EQ(finished.status, 2) << finished.output;
    return finished.output;
  };
  EXPECT_THAT(refusal("gpt", {"mesh.tensor=4", "model.heads=2"}),
              HasSubstr("model.heads 2 is not divisible by mesh.tensor 4"));
  EXPECT_THAT(refusal("gpt", {"mesh.tensor=2", R"(tensor={"plan": {"blocks*": "divided"}})"}),
              AllOf(HasSubstr("\"blocks*\" matches no layer"), HasSubstr("block0.attention")));
  EXPECT_THAT(refusal("gpt", {"mesh.tensor=2",
                              R"(tensor={"plan": {"block*": "divided", "*mlp": "replicated"}})"}),
              HasSubstr("both match block0.mlp"));
  EXPECT_THAT(refusal("gpt", {"mesh.tensor=2", R"(tensor={"plan": {"*": "replicated"}})"}),
              HasSubstr("replicates all layers"));
  EXPECT_THAT(refusal("gpt", {"mesh.tensor=2", R"(tensor={"plan": {"head": "columns"}})"}),
              HasSubstr("divided"));
  EXPECT_THAT(refusal("gpt", {R"(tensor={"plan": {"head": "divided"}})"}),
              HasSubstr("mesh.tensor is 1"));
  EXPECT_THAT(refusal("gpt", {"mesh.spatial=2"}), HasSubstr("has no convolutions"));
  EXPECT_THAT(refusal("gpt", {"mesh.pipeline=2", "pipeline.schedule=pipedream", "zero.stage=1"}),
              AllOf(HasSubstr("zero.stage above 0 is incompatible"), HasSubstr("zero_bubble")));
  EXPECT_THAT(refusal("gpt", {"mesh.pipeline=2", "pipeline.schedule=2bw"}),
              HasSubstr("gradient_clipping is incompatible with pipeline.schedule 2bw"));
  const Settings predicted{"mesh.pipeline=2", "pipeline.schedule=pipedream", "gradient_clipping=0",
                           "pipeline.weights=spectrain"};
  for (const std::string key :
       {"activation_checkpointing.number_checkpoints=1", "pipeline.recompute=true"}) {
    Settings settings = predicted;
    settings.push_back(key);
    EXPECT_THAT(refusal("gpt", settings),
                HasSubstr(key.substr(0, key.find('=')) +
                          " needs a backward with the weights of its forward"));
  }
  EXPECT_THAT(refusal("gpt", {"mesh.tensor=2", "optimizer.name=lamb"}),
              HasSubstr("norms of whole parameters"));
  EXPECT_THAT(refusal("resnet", {"mesh.tensor=4"}), HasSubstr("model.groups 2"));
  EXPECT_THAT(refusal("resnet", {"mesh.tensor=2", "mesh.spatial=2"}), HasSubstr("leave one out"));
  EXPECT_THAT(refusal("resnet", {"mesh.spatial=4", "spatial.width=3"}),
              HasSubstr("is not mesh.spatial 4"));
  EXPECT_THAT(refusal("resnet", {"mesh.spatial=2", "spatial.hight=2"}), HasSubstr("height"));
  EXPECT_THAT(refusal("resnet", {"mesh.spatial=2", "precision=bf16"}),
              HasSubstr("incompatible with mesh.spatial above 1"));
}

}  // namespace
}  // namespace gradwire::test
