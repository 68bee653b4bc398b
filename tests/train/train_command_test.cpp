#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/workload/layer_profile.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct TrainCommand : ::testing::Test {
  TrainCommand() {
    write_image_data(folder.path(), 330, 101);
    write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": 16}, "batch_size": 32,
                                      "optimizer": {"learning_rate": 0.02}, "epochs": 2})");
  }

  Finished train(std::vector<std::string> arguments) { return train(arguments, folder.path()); }

  /// Trains a small gpt on a text for ten steps.
  Finished train_gpt(std::vector<std::string> arguments) {
    std::string text;
    for (int i = 0; i < 1800; ++i) text += static_cast<char>('a' + i * i % 26);
    write_file(folder / "text", text);
    const std::vector<std::string> settings{
        "--set",
        "data={\"name\": \"text\", \"context\": 8, \"limit\": 160}",
        "--set",
        "model={\"name\": \"gpt\", \"width\": 16, \"heads\": 2, \"tie_word_embeddings\": true}",
        "--set",
        "batch_size=16",
        "--set",
        "epochs=1"};
    arguments.insert(arguments.begin(), settings.begin(), settings.end());
    return train(arguments, folder / "text");
  }

  Finished train(const std::vector<std::string>& arguments, const std::filesystem::path& data) {
    std::vector<std::string> command{own_program().parent_path() / "gradwire", "train",
                                     folder / "c.json", "--data", data};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run(command);
  }

  bool same_model(const std::string& a, const std::string& b) {
    const auto first = load_safetensors(folder / a / "model.safetensors").tensors;
    const auto second = load_safetensors(folder / b / "model.safetensors").tensors;
    EXPECT_EQ(first.size(), second.size());
    return std::ranges::all_of(
        first, [&](const auto& item) { return item.second.equal(second.at(item.first)); });
  }

  std::string content(const std::string& name) { return content_of(folder / name); }

  double last_loss(const std::string& run) {
    return nlohmann::json::parse(content(run + "/run.json"))["steps"]["loss"].back().get<double>();
  }

  static double number_after(const std::string& text, const std::string& words) {
    const auto at = text.find(words);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + words.size()));
  }

  TemporaryFolder folder;
};

TEST_F(TrainCommand, TrainsOnSeveralProcesses) {
  const auto finished = train({"-n", "4", "--output", folder / "out", "--set", "epochs=3"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("epoch 3/3  step 10/10"), HasSubstr("Trained on 4 ranks: 30 steps"),
                    HasSubstr("test accuracy"), HasSubstr("of 101 images"), HasSubstr("images/s"),
                    HasSubstr("T_s / (T_s + T_c)"), HasSubstr("of the textbook's"),
                    HasSubstr("out/model.safetensors")));
  // The ring's bytes, except that a small bucket may use an algorithm with fewer messages.
  EXPECT_NEAR(number_after(finished.output, "KiB a step, "), 1, 0.03);
  EXPECT_THAT(finished.output, Not(HasSubstr("\r"))) << "no live line where no terminal is";
  const auto checkpoint = load_safetensors(folder / "out" / "model.safetensors");
  EXPECT_EQ(checkpoint.tensors.at("output.weight").sizes(), (at::IntArrayRef{10, 16}));
}

TEST_F(TrainCommand, TrainsAPipelineLikeOneRank) {
  const std::vector<std::string> settings{"--set", "optimizer.name=adam", "--set",
                                          "pipeline.micro_batches=4"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const auto finished = train(arguments);
    EXPECT_EQ(finished.status, 0) << finished.output;
    return finished.output;
  };
  const std::string output =
      with({"-n", "2", "--output", folder / "two", "--set", "mesh.pipeline=2"});
  EXPECT_THAT(output, AllOf(HasSubstr("Trained on 2 ranks: 20 steps"), HasSubstr("of 101 images")));
  EXPECT_EQ(nlohmann::json::parse(content("two/run.json"))["strategy"], "pipeline x2");
  with({"-n", "3", "--output", folder / "three", "--set", "mesh.pipeline=3", "--set",
        "pipeline.schedule=zero_bubble", "--set", "pipeline.cut=[1,2,2]"});
  EXPECT_TRUE(same_model("two", "three"));
  const auto alone = train({"--output", folder / "one", "--set", "optimizer.name=adam", "--set",
                            "accumulation_steps=4"});
  ASSERT_EQ(alone.status, 0) << alone.output;
  EXPECT_NEAR(last_loss("two"), last_loss("one"), 1e-4);
  EXPECT_GT(last_loss("two"), 0);
}

TEST_F(TrainCommand, TrainsTiedEmbeddings) {
  for (const std::string ranks : {"2", "3"}) {
    const auto finished =
        train_gpt({"-n", ranks, "--output", folder / ranks, "--set", "mesh.pipeline=" + ranks});
    ASSERT_EQ(finished.status, 0) << finished.output;
  }
  EXPECT_TRUE(same_model("2", "3"));
  const auto model = load_safetensors(folder / "2" / "model.safetensors").tensors;
  EXPECT_TRUE(model.at("embedding.character.weight").equal(model.at("head.output.weight")));
  for (const std::string ranks : {"1", "2"}) {  // One stage, and two replicas of it.
    const auto finished = train_gpt({"-n", ranks, "--output", folder / ("whole" + ranks), "--set",
                                     fmt::format("accumulation_steps={}", ranks == "1" ? 8 : 4)});
    ASSERT_EQ(finished.status, 0) << finished.output;
  }
  EXPECT_NEAR(last_loss("whole1"), last_loss("2"), 1e-4);
  EXPECT_EQ(nlohmann::json::parse(content("whole2/run.json"))["strategy"], "DDP x2");
  EXPECT_THAT(train_gpt({"--set", "precision=bf16"}).output,
              HasSubstr("precision is incompatible with model.tie_word_embeddings; use fp32"));
}

TEST_F(TrainCommand, RecomputesStagesWithTheSameBits) {
  for (const std::string recompute : {"false", "true"}) {
    const auto finished =
        train_gpt({"-n", "2", "--output", folder / recompute, "--set", "mesh.pipeline=2", "--set",
                   "pipeline.recompute=" + recompute, "--set", "model.dropout=0.2"});
    ASSERT_EQ(finished.status, 0) << finished.output;
  }
  EXPECT_TRUE(same_model("false", "true"));
}

TEST_F(TrainCommand, EncodesActivations) {
  const auto loss_with = [&](const std::string& name, const std::string& codecs) {
    const auto finished = train_gpt({"-n", "2", "--output", folder / name, "--set",
                                     "mesh.pipeline=2", "--set", "pipeline.codec=" + codecs});
    EXPECT_EQ(finished.status, 0) << finished.output;
    return nlohmann::json::parse(content(name + "/run.json"))["steps"]["loss"].back().get<double>();
  };
  const double without = loss_with("without", "{}");
  const double with = loss_with("with", R"({"forward": "int8", "backward": "bf16"})");
  EXPECT_NEAR(with, without, 0.1);
  EXPECT_NE(with, without);
  const auto wrong =
      train_gpt({"-n", "2", "--set", "mesh.pipeline=2", "--set", "pipeline.codec.forward=int9"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output,
              AllOf(HasSubstr("pipeline.codec.forward: unknown codec \"int9\" (did you mean "
                              "\"int8\"?)"),
                    HasSubstr("bf16")));
}

TEST_F(TrainCommand, TrainsAnAsynchronousPipeline) {
  const auto finished = train({"-n", "3", "--output", folder / "out", "--set", "mesh.pipeline=3",
                               "--set", "pipeline.schedule=pipedream", "--set",
                               "pipeline.weights=spectrain", "--set", "epochs=4"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_EQ(nlohmann::json::parse(content("out/run.json"))["steps"]["loss"].size(), 40);
  const auto wrong =
      train({"-n", "3", "--set", "mesh.pipeline=3", "--set", "pipeline.weights=spectrein"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("did you mean \"spectrain\""));
}

TEST_F(TrainCommand, EvaluatesAnAsynchronousPipelineAfterEpochs) {
  for (const std::string schedule : {"pipedream", "2bw"}) {
    const auto finished =
        train({"-n", "2", "--output", folder / schedule, "--set", "mesh.pipeline=2", "--set",
               "pipeline.schedule=" + schedule, "--set", "evaluate_every=1", "--set", "epochs=3"});
    ASSERT_EQ(finished.status, 0) << finished.output;
    const auto record = nlohmann::json::parse(content(schedule + "/run.json"));
    EXPECT_EQ(record["tests"]["step"], nlohmann::json({10, 20, 30})) << schedule;
  }
}

TEST_F(TrainCommand, ResumesAHybridInAnotherLayout) {
  const std::vector<std::string> settings{
      "--set", "checkpoint_every=10", "--set", "optimizer.name=adam", "--set", "model.dropout=0"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const auto finished = train(arguments);
    EXPECT_EQ(finished.status, 0) << finished.output;
  };
  const auto half = [&](const std::string& output) {
    with({"-n", "4", "--output", folder / output, "--set", "mesh.pipeline=2", "--set",
          "zero.stage=1", "--set", "epochs=1"});
  };
  half("through");
  with({"-n", "4", "--output", folder / "through", "--set", "mesh.pipeline=2", "--set",
        "zero.stage=1", "--set", "resume=auto"});
  half("other");
  with({"-n", "2", "--output", folder / "other", "--set", "mesh.pipeline=1", "--set",
        "resume=auto"});
  const auto losses = [&](const std::string& run) {
    return nlohmann::json::parse(content(run + "/run.json"))["steps"]["loss"]
        .get<std::vector<double>>();
  };
  const auto through = losses("through"), other = losses("other");
  ASSERT_EQ(through.size(), other.size());
  for (std::size_t i = 0; i < through.size(); ++i) EXPECT_NEAR(through[i], other[i], 1e-3) << i;
}

TEST_F(TrainCommand, DryRunDrawsThePipelineWithoutData) {
  const auto finished = train(
      {"-n", "4", "--dry-run", "--set", "mesh.pipeline=2", "--set", "pipeline.micro_batches=3"},
      folder / "nowhere");
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("4 ranks: pipeline 2 x data 2"), HasSubstr("16 samples per replica"),
                    HasSubstr("stage 0 on rank 0 of the pipeline: flatten"),
                    HasSubstr("stage 1 on rank 1 of the pipeline"),
                    HasSubstr("kept, by rank: activations of 2, 1 micro-batches\n"),
                    HasSubstr("1f1b with 3 micro-batches: verified"), HasSubstr("F0")));
  const auto recomputes = train(
      {"-n", "2", "--dry-run", "--set", "mesh.pipeline=2", "--set", "pipeline.recompute=true"},
      folder / "nowhere");
  EXPECT_THAT(recomputes.output,
              HasSubstr("kept, by rank: inputs of stages of 2, 1 micro-batches; a backward "
                        "computes its forward again"));
}

TEST_F(TrainCommand, AMeshThatDoesNotFitIsRefusedBeforeRanksStart) {
  const auto refusal = [&](std::vector<std::string> settings) {
    settings.insert(settings.begin(), {"-n", "4"});
    const auto finished = train(settings);
    EXPECT_EQ(finished.status, 2) << finished.output;
    return finished.output;
  };
  EXPECT_THAT(refusal({"--set", "mesh.pipeline=3"}), HasSubstr("needs a multiple of 3 ranks"));
  EXPECT_THAT(refusal({"--slow", "4:2"}), HasSubstr("--slow 4: ranks 0 to 3 train"));
  EXPECT_THAT(refusal({"--slow", "0:0.5"}), HasSubstr("a rank that waits is not faster"));
  EXPECT_THAT(refusal({"--set", "mesh.pipelines=2"}), HasSubstr("pipeline"));
  EXPECT_THAT(refusal({"--set", "pipeline.micro_batches=2"}), HasSubstr("mesh.pipeline is 1"));
  EXPECT_THAT(refusal({"--set", "mesh.pipeline=2", "--set", "pipeline.schedule=1f2b"}),
              HasSubstr("1f1b"));
  EXPECT_THAT(refusal({"--set", "mesh.pipeline=2", "--set", "accumulation_steps=2"}),
              HasSubstr("pipeline.micro_batches"));
  EXPECT_THAT(refusal({"--set", "mesh.pipeline=2", "--dry-run", "--set", "pipeline.cut=[1,1]"}),
              HasSubstr("5 in all"));
}

TEST_F(TrainCommand, TrainsAloneWithoutALauncher) {
  const auto finished = train({"--output", folder / "out"});
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("Trained on 1 rank: 20 steps"));
}

TEST_F(TrainCommand, TrainsOnSeveralHosts) {
  const auto shell = folder / "shell";
  write_file(shell, "#!/bin/sh\nshift\nexec \"$@\"\n");
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const auto finished = train(
      {"--hosts", "a,b", "--rsh", shell, "--master-addr", "127.0.0.1", "--output", folder / "out"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("Trained on 2 ranks: 20 steps"));
}

TEST_F(TrainCommand, RefusesInvalidInputBeforeRanksStart) {
  const auto program = own_program().parent_path() / "gradwire";
  const auto refused = [&](const std::vector<std::string>& words) {
    std::vector<std::string> command{program, "train"};
    command.insert(command.end(), words.begin(), words.end());
    const auto finished = run(command);
    EXPECT_EQ(finished.status, 2) << finished.output;
    return finished.output;
  };
  const std::string config = folder / "c.json";
  EXPECT_THAT(refused({}), HasSubstr("gradwire train: no configuration given"));
  EXPECT_THAT(refused({folder.path()}),
              HasSubstr("cannot read " + folder.path().string() + ": it is a folder"));
  EXPECT_THAT(refused({"/nowhere", "-n", "2"}), HasSubstr("gradwire train: the configuration: "));
  EXPECT_THAT(refused({config, "--set", "epochs"}), HasSubstr("gradwire train: "));
  EXPECT_THAT(refused({config, "--hosts", "a:x"}), HasSubstr("gradwire train: --hosts a:x: "));
  EXPECT_THAT(refused({config, "-n", "3"}), HasSubstr("batch_size 32 is not divisible by 3 ranks"));
  EXPECT_THAT(refused({config, "--set", "local_steps.steps=2", "--set", "parallel.codec=int8"}),
              HasSubstr("use local_steps.codec \"int8\""));
  const auto inside = run({program, "run", "-n", "2", program, "train", config, "-n", "4"});
  EXPECT_EQ(inside.status, 2);
  EXPECT_THAT(inside.output, HasSubstr("-n asks for 4 ranks, but this process is already rank"));
}

TEST_F(TrainCommand, AnUnwritableSummaryIsNoSuccess) {
  const auto program = (own_program().parent_path() / "gradwire").string();
  const auto finished =
      run({"sh", "-c",
           program + " train " + (folder / "c.json").string() + " --data " +
               folder.path().string() + " --output " + (folder / "out").string() + " >/dev/full"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_THAT(finished.output, HasSubstr("gradwire: cannot write to standard output"));
}

TEST_F(TrainCommand, RepeatsBitForBitOnSeveralProcesses) {
  for (const auto* out : {"a", "b"}) {
    const auto finished = train({"-n", "3", "--output", folder / out, "--set", "batch_size=30"});
    ASSERT_EQ(finished.status, 0) << finished.output;
  }
  const auto a = load_safetensors(folder / "a" / "model.safetensors").tensors;
  const auto b = load_safetensors(folder / "b" / "model.safetensors").tensors;
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
}

TEST_F(TrainCommand, OverlapDoesNotChangeTheModelByABit) {
  for (const auto* overlap : {"none", "backward", "full"}) {
    const auto finished = train({"-n", "4", "--output", folder / overlap, "--set",
                                 std::string("parallel.overlap=") + overlap, "--set",
                                 "parallel.bucket_cap_mb=0.01", "--set", "accumulation_steps=2"});
    ASSERT_EQ(finished.status, 0) << finished.output;
  }
  EXPECT_TRUE(same_model("none", "backward"));
  EXPECT_TRUE(same_model("none", "full"));
}

TEST_F(TrainCommand, ACodecSendsLessAndStillLearns) {
  const auto finished = train(
      {"-n", "4", "--output", folder / "out", "--set", "epochs=6", "--set", "parallel.codec=int8"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_GT(number_after(finished.output, "test accuracy"), 90);
  EXPECT_LT(number_after(finished.output, "a step, "), 0.3) << "of the textbook's bytes";
}

TEST_F(TrainCommand, SaysWhatAutoHasChosen) {
  const auto summary = (folder / "summary.json").string();
  const auto codec_of = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"-n", "2", "--output", folder / "out", "--json", summary};
    for (const auto& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    const auto finished = train(arguments);
    EXPECT_EQ(finished.status, 0) << finished.output;
    const auto written = nlohmann::json::parse(std::ifstream(summary));
    if (!written.contains("codec")) return std::string();
    const auto codec = written["codec"].get<std::string>();
    EXPECT_THAT(finished.output, HasSubstr(codec));
    return codec;
  };
  EXPECT_THAT(codec_of({"parallel.codec=auto:int4"}),
              ContainsRegex("^auto: (int4|none) .a step takes .* ms with int4 and .* ms"));
  EXPECT_THAT(codec_of({"local_steps.steps=2", "local_steps.codec=auto"}),
              ContainsRegex("^auto: (int8|none) .a step takes"));
}

TEST_F(TrainCommand, AResumedRunHasTheSameBits) {
  const auto run_with = [&](const std::string& out, std::vector<std::string> more) {
    for (const auto* setting : {"parallel.codec=top_k:0.1", "checkpoint_every=4",
                                "model.dropout=0.2", "optimizer.name=adam"}) {
      more.insert(more.end(), {"--set", setting});
    }
    more.insert(more.end(), {"-n", "2", "--output", folder / out});
    const auto finished = train(more);
    ASSERT_EQ(finished.status, 0) << finished.output;
  };
  run_with("whole", {"--set", "optimizer.learning_rate=0.003"});
  run_with("parts", {"--set", "optimizer.learning_rate=0.003", "--set", "epochs=1"});
  EXPECT_FALSE(same_model("whole", "parts"));
  const auto checkpoint = (folder / "parts" / "model.safetensors").string();
  run_with("parts", {"--set", "optimizer.learning_rate=0.003", "--set", "resume=" + checkpoint});
  EXPECT_TRUE(same_model("whole", "parts"));
}

TEST_F(TrainCommand, AFinishedRunThatIsStartedAgainKeepsItsRecords) {
  const std::vector<std::string> arguments{"-n",       "2",
                                           "--output", folder / "out",
                                           "--json",   folder / "out.json",
                                           "--set",    "checkpoint_every=4",
                                           "--set",    "resume=auto"};
  const auto first = train(arguments);
  ASSERT_EQ(first.status, 0) << first.output;
  const auto record = content("out/run.json"), summary = content("out.json");
  EXPECT_THAT(record, HasSubstr("\"loss\""));
  const auto again = train(arguments);
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, AllOf(HasSubstr("Nothing was left to train on 2 ranks"),
                                  HasSubstr("test accuracy"), Not(HasSubstr("T_s"))));
  EXPECT_EQ(content("out/run.json"), record);
  EXPECT_EQ(content("out.json"), summary);
}

TEST_F(TrainCommand, EvaluatesAfterEpochs) {
  const auto finished = train({"-n", "2", "--set", "evaluate_every=2", "--set", "epochs=5", "--set",
                               "schedule.warmup_epochs=1", "--output", folder / "out"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(ContainsRegex("epoch 2/5  test accuracy [0-9.]+ % of 101 images .loss "),
                    HasSubstr("epoch 4/5  test accuracy"), Not(HasSubstr("epoch 5/5  test"))));
  const auto record = nlohmann::json::parse(content("out/run.json"));
  EXPECT_EQ(record["tests"]["step"], nlohmann::json({20, 40, 50}));
  EXPECT_EQ(record["tests"]["loss"][2], record["summary"]["test_loss"]);
  EXPECT_EQ(record["steps"]["learning_rate"][0], 0.002);
  EXPECT_EQ(record["steps"]["learning_rate"][49], 0.02);
  EXPECT_EQ(record["hosts"].size(), 2);
  EXPECT_NE(record["hosts"][0], "");
}

TEST_F(TrainCommand, UnwritableOutputIsReportedBeforeTraining) {
  write_file(folder / "file", "not a folder");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--output", folder / "file"},
        {"--output", folder / "out", "--set", "checkpoint=models/"},
        {"--output", folder / "out", "--json", folder.path()}}) {
    const auto finished = train(arguments);
    EXPECT_NE(finished.status, 0);
    EXPECT_THAT(finished.output, AllOf(HasSubstr("cannot be written: "), Not(HasSubstr("step"))));
  }
}

TEST_F(TrainCommand, RecordsAProfile) {
  const auto finished = train({"--output", folder / "out", "--set", "epochs=1", "--record-profile",
                               folder / "profile.json"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  const auto profile = workload::read_profile(folder / "profile.json");
  EXPECT_EQ(profile.name, "mlp");
  EXPECT_EQ(profile.parameters(), 784u * 16 + 16 + 16 * 10 + 10);
  ASSERT_EQ(profile.layers.size(), 5u);
  EXPECT_EQ(profile.layers[1].name, "hidden");
  EXPECT_EQ(profile.layers[1].parameters[0].shape, (std::vector<std::int64_t>{16, 784}));
  EXPECT_GT(profile.layers[1].backward, 0);
  EXPECT_GT(profile.compute, Duration{});
}

TEST_F(TrainCommand, RefusesAWrongConfigurationBeforeItStartsRanks) {
  const auto unknown = train({"-n", "2", "--set", "optimizer.learning_rat=1"});
  EXPECT_NE(unknown.status, 0);
  EXPECT_THAT(unknown.output, AllOf(HasSubstr("learning_rat\""), HasSubstr("\"learning_rate\""),
                                    Not(HasSubstr("[1]"))));
  const auto uneven = train({"-n", "3"});
  EXPECT_NE(uneven.status, 0);
  EXPECT_THAT(uneven.output, HasSubstr("batch_size 32 is not divisible by 3 ranks"));
}

TEST_F(TrainCommand, AMissingDataSetIsAnErrorThatSaysWhatToDo) {
  const auto finished = train({"-n", "2"}, folder / "nowhere");
  EXPECT_NE(finished.status, 0);
  EXPECT_THAT(finished.output, HasSubstr("dataset-fashion-mnist"));
}

struct Generate : TrainCommand {
  /// `gradwire generate` of a model that has learnt "abc...xyz" by heart.
  Generate() {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i % 26);
    write_file(folder / "alphabet", text);
    trained = train({"--set", R"(data={"name": "text", "context": 16})", "--set",
                     R"(model={"name": "gpt", "width": 32, "heads": 2, "vocabulary": 300})",
                     "--set", R"(optimizer={"name": "adam", "learning_rate": 0.01})", "--set",
                     "epochs=8", "--output", folder / "gpt", "--json", folder / "summary.json"},
                    folder / "alphabet");
  }

  Finished generate(std::vector<std::string> arguments, const std::string& model = "gpt") {
    arguments.insert(arguments.begin(), {own_program().parent_path() / "gradwire", "generate",
                                         folder / model / "model.safetensors"});
    return run(arguments);
  }

  Finished trained;
};

TEST_F(Generate, ContinuesATextAsTheModelHasLearntIt) {
  ASSERT_EQ(trained.status, 0) << trained.output;
  const auto greedy = generate({"--prompt", "defgh", "--length", "30", "--temperature", "0"});
  EXPECT_EQ(greedy.status, 0);
  EXPECT_EQ(greedy.output, "defghijklmnopqrstuvwxyzabcdefghijkl\n");
  const auto drawn = generate({"--temperature", "30", "--length", "50", "--seed", "3"});
  EXPECT_EQ(generate({"--temperature", "30", "--length", "50", "--seed", "3"}).output,
            drawn.output);
  EXPECT_NE(generate({"--temperature", "30", "--length", "50", "--seed", "4"}).output,
            drawn.output);
  const auto written = nlohmann::json::parse(
      generate({"--prompt", "xy", "--length", "3", "--temperature", "0", "--json", "-"}).output);
  EXPECT_EQ(written["prompt"], "xy");
  EXPECT_EQ(written["text"], "zab");
}

TEST_F(Generate, RefusesOtherModelsByName) {
  train({"--output", folder / "mlp"});
  const auto refused = generate({}, "mlp");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("gradwire generate: "),
                                    HasSubstr("is a mlp, which does not write text")));
  EXPECT_EQ(generate({"--prompt", ""}).status, 1);
  EXPECT_EQ(generate({"--length", "0"}).status, 2);
}

TEST_F(Generate, SummariesOfTextsSpeakOfCharacters) {
  EXPECT_THAT(trained.output,
              AllOf(ContainsRegex("throughput +[0-9]+ characters/s"),
                    ContainsRegex("% of [0-9]+ characters .loss .*, perplexity 1.")));
  EXPECT_THAT(trained.output, Not(HasSubstr("images")));
  std::ifstream stream(folder / "summary.json");
  const auto written = nlohmann::json::parse(stream);
  EXPECT_EQ(written["characters_per_sample"], 16);
  const double loss = written["test_loss"];
  EXPECT_NEAR(written["test_perplexity"].get<double>(), std::exp(loss), 1e-9);
}

struct StoppedTraining : TrainCommand {
  /// Starts endless training with these options, and sends a signal when it shows progress.
  Finished stop_by(const std::string& signal, const std::string& output,
                   const std::string& options) {
    const auto log = (folder / "log").string();
    const std::string script = fmt::format(
        "rm -f {4}; touch {4}; {0} train {1}/c.json --data {1} --output {1}/{2} --set "
        "epochs=1000000 --set "
        "checkpoint_every=100000000 {3} >{4} 2>&1 & run=$!; "
        "until grep -q 'epoch' {4}; do sleep 0.1; done; sleep 0.3; kill -{5} $run; "
        "wait $run; status=$?; cat {4}; exit $status",
        (own_program().parent_path() / "gradwire").string(), folder.path().string(), output,
        options, log, signal);
    return run({"sh", "-c", script});
  }

  /// Stops a training, resumes it, and compares with one that was not stopped. `settings`:
  /// separated by spaces.
  void expect_same_bits(const std::string& signal, int status, const std::string& options,
                        int ranks, const std::string& settings = "") {
    const std::string what = fmt::format("{} {} {}", signal, options, settings);
    std::filesystem::remove_all(folder / "stopped");
    std::vector<std::string> same{"-n", std::to_string(ranks)};
    std::string stopped_options = options;
    std::istringstream list(settings);
    for (std::string setting; list >> setting;) {
      stopped_options += " --set " + setting;
      same.insert(same.end(), {"--set", setting});
    }
    const auto stopped = stop_by(signal, "stopped", stopped_options);
    EXPECT_EQ(stopped.status, status) << what << stopped.output;
    const int steps = steps_in(stopped.output);
    ASSERT_GT(steps, 0) << what << stopped.output;
    EXPECT_THAT(stopped.output, HasSubstr("stopped by SIG" + signal));
    EXPECT_THAT(stopped.output, Not(HasSubstr("failed with exit status")));
    same.insert(same.end(), {"--set", fmt::format("epochs={}", steps / 10 + 1), "--output"});
    std::vector<std::string> whole = same, resumed = same;
    whole.push_back(folder / "whole");
    resumed.insert(resumed.end(), {folder / "stopped", "--set", "resume=auto"});
    EXPECT_THAT(train(resumed).output, HasSubstr(fmt::format("after {} steps", steps))) << what;
    train(whole);
    EXPECT_TRUE(same_model("stopped", "whole")) << what;
  }

  /// The number in "after step N".
  static int steps_in(const std::string& text) {
    const auto at = text.find("after step ");
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + 11));
  }
};

TEST_F(StoppedTraining, GoesOnWithTheSameBits) {
  write_file(folder / "rsh", "#!/bin/sh\nshift\nexec \"$@\"\n");
  std::filesystem::permissions(folder / "rsh", std::filesystem::perms::owner_all);
  const std::string hosts =
      fmt::format("--hosts a,b --master-addr 127.0.0.1 --rsh {}", (folder / "rsh").string());
  expect_same_bits("TERM", 143, "-n 2", 2);
  expect_same_bits("USR1", 138, "-n 2", 2);
  expect_same_bits("TERM", 143, hosts, 2);
  expect_same_bits("USR1", 138, "-n 1", 1);
}

TEST_F(StoppedTraining, EveryStrategyGoesOnWithTheSameBits) {
  for (const auto* settings :
       {"zero.stage=1 evaluate_every=3", "zero.stage=3 parallel.codec=int8", "parallel.codec=int4",
        "local_steps.steps=3 local_steps.codec=int8 evaluate_every=3", "mesh.tensor=2",
        "mesh.pipeline=2 pipeline.schedule=zero_bubble evaluate_every=3",
        "mesh.pipeline=2 pipeline.codec.forward=int8 model.dropout=0.2"}) {
    expect_same_bits("TERM", 143, "-n 2", 2, settings);
  }
}

TEST_F(StoppedTraining, WithServersGoesOnWithTheSameBits) {
  expect_same_bits("TERM", 143, "-n 3", 3, "servers.count=1 evaluate_every=3");
  expect_same_bits("USR1", 138, "-n 2", 2, "servers.place=workers optimizer.momentum=0.5");
}

TEST_F(StoppedTraining, WhoseSamplesAreDealtGoesOnWithTheRest) {
  for (const std::string mode : {"async", "ssp:1"}) {
    std::filesystem::remove_all(folder / "stopped");
    const std::string servers = "servers.mode=" + mode;
    const auto stopped = stop_by("TERM", "stopped", "-n 4 --set servers.count=2 --set " + servers);
    EXPECT_EQ(stopped.status, 143) << stopped.output;
    const int steps = steps_in(stopped.output);
    ASSERT_GT(steps, 0) << stopped.output;
    const auto summary = (folder / "resumed.json").string();
    const auto resumed = train({"-n", "3", "--set", "servers.count=1", "--set", servers, "--output",
                                folder / "stopped", "--set", "resume=auto", "--json", summary,
                                "--set", fmt::format("epochs={}", steps / 10 + 2)});
    EXPECT_THAT(resumed.output, HasSubstr(fmt::format("after {} steps", steps)));
    EXPECT_THAT(resumed.output, HasSubstr("Trained on 2 ranks"));
  }
}

TEST_F(StoppedTraining, ItsRecordKeepsTheStepsBefore) {
  const auto record = [&](const std::string& output) {
    std::ifstream stream(folder / output / "run.json");
    return nlohmann::json::parse(stream);
  };
  const auto stopped = stop_by("TERM", "stopped", "-n 2");
  const int steps = steps_in(stopped.output);
  ASSERT_GT(steps, 0) << stopped.output;
  const auto before = record("stopped");
  EXPECT_EQ(before["summary"]["steps"], steps);
  EXPECT_EQ(before["summary"]["test_images"], 0);
  const int epochs = steps / 10 + 2;
  train({"-n", "2", "--output", folder / "stopped", "--set", fmt::format("epochs={}", epochs),
         "--set", "resume=auto"});
  const auto after = record("stopped");
  EXPECT_EQ(after["summary"]["steps"], 10 * epochs);
  EXPECT_GT(after["summary"]["test_images"], 0);
  const auto numbers = after["steps"]["step"].get<std::vector<int>>();
  EXPECT_EQ(numbers.front(), 0);
  EXPECT_GE(numbers.back(), steps);
  EXPECT_TRUE(std::ranges::is_sorted(numbers));
  EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end());
  const auto losses = before["steps"]["loss"];
  EXPECT_EQ(after["steps"]["loss"][1],
            losses[after["steps"]["every"] == before["steps"]["every"] ? 1 : 2]);

  // From another folder, too.
  train({"-n", "1", "--output", folder / "branch", "--set", fmt::format("epochs={}", epochs + 1),
         "--set", "resume=" + (folder / "stopped" / "checkpoints").string()});
  EXPECT_EQ(record("branch")["summary"]["steps"], 10 * (epochs + 1));
}

TEST_F(StoppedTraining, WritesItsTrace) {
  const auto trace = folder / "trace.json";
  const auto stopped = stop_by("TERM", "stopped", "-n 2 --trace " + trace.string());
  EXPECT_EQ(stopped.status, 143) << stopped.output;
  std::ifstream stream(trace);
  EXPECT_FALSE(nlohmann::json::parse(stream)["traceEvents"].empty());
}

TEST_F(StoppedTraining, WithoutCheckpointsEndsAtOnce) {
  const auto stopped = stop_by("TERM", "stopped", "-n 2 --set checkpoint_every=0");
  EXPECT_EQ(stopped.status, 143) << stopped.output;
  EXPECT_THAT(stopped.output, HasSubstr("stopped by SIGTERM"));
  EXPECT_FALSE(std::filesystem::exists(folder / "stopped" / "checkpoints"));
}

}  // namespace
}  // namespace gradwire::test
