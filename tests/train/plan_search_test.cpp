#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/recipe/train_config.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

/// `gradwire train` must accept the output of `gradwire plan --search` and `gradwire plan place`.
namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json searched(const std::vector<std::string>& options) {
  std::vector<std::string> command{own_program().parent_path() / "gradwire", "plan", "--search",
                                   "--json", "-"};
  command.insert(command.end(), options.begin(), options.end());
  const Finished finished = run(command);
  EXPECT_EQ(finished.status, 0) << finished.output;
  return json::parse(finished.output);
}

TEST(PlanSearch, PrintsAConfigurationOfItsOwnForModelsLikeGpt2) {
  const recipe::TrainConfig config = recipe::parse_train_config(
      searched({"--model", "gpt2_xl", "--nodes", "8", "--batch", "8", "--memory", "12G"}));
  EXPECT_EQ(config.model.name, "gpt");
  EXPECT_EQ(config.model.layers, 48);
  EXPECT_EQ(config.model.vocabulary, 50257);
  EXPECT_EQ(config.data.context, 1024);
  EXPECT_EQ(config.model.checkpoints, 48);  // Otherwise activations of 1024 tokens do not fit.
  EXPECT_EQ(config.zero.stage, 2);          // 6 GB of parameters and an eighth of 19 fit.
  EXPECT_EQ(config.batch_size, 64);
  EXPECT_EQ(recipe::batch_size_per_replica(config, 8), 8);
}

TEST(PlanSearch, PrintsTheRestOfTheConfigurationForOthers) {
  const recipe::TrainConfig plain = recipe::parse_train_config(
      searched({"--model", "resnet50", "--network", "1gbe", "--optimizer", "momentum"}));
  EXPECT_EQ(plain.zero.stage, 0);
  EXPECT_EQ(plain.parallel.codec, "bf16");
  EXPECT_EQ(plain.parallel.overlap, step::Overlap::full);
  EXPECT_EQ(plain.optimizer.name, "sgd");
  EXPECT_EQ(plain.optimizer.momentum, 0.9);
  EXPECT_EQ(plain.batch_size, 128);

  const recipe::TrainConfig mixed = recipe::parse_train_config(
      searched({"--model", "vit_b", "--precision", "mixed", "--nodes", "2", "--local-steps", "1"}));
  EXPECT_EQ(mixed.parameters, Precision::bf16);
  EXPECT_GE(mixed.zero.stage, 1);

  const recipe::TrainConfig local = recipe::parse_train_config(
      searched({"--model", "vgg16", "--local-steps", "8", "--fragments", "2", "--overlap-steps",
                "3", "--codecs", "int8", "--optimizer", "sgd"}));
  EXPECT_EQ(local.local_steps.steps, 8);
  EXPECT_EQ(local.local_steps.fragments, 2);
  EXPECT_EQ(local.local_steps.overlap_steps, 3);
  EXPECT_EQ(local.parallel.codec, "none") << "there would be no gradients for it";
  EXPECT_EQ(local.optimizer.momentum, 0);
}

Finished gradwire(const std::vector<std::string>& words) {
  std::vector<std::string> command{own_program().parent_path() / "gradwire"};
  command.insert(command.end(), words.begin(), words.end());
  Finished finished = run(command);
  EXPECT_EQ(finished.status, 0) << finished.output;
  return finished;
}

/// The cut, order and schedule that are printed for unequal hosts are those that train.
TEST(PlanPlace, PrintsAPipelineThatRuns) {
  TemporaryFolder folder;
  const std::string config = folder / "pipeline.json";
  const json placed = json::parse(
      gradwire({"plan", "place", "--model",
                "transformer:layers=4,width=32,heads=2,tokens=16,vocabulary=256", "--speeds",
                "1,0.4,1", "--rates", "1gbe,1gbe,100mbe", "--device", "cpu_8", "--batch", "8",
                "--precision", "fp32", "--config", config, "--json", "-"})
          .output)["over_hosts"];
  const auto stages = static_cast<int>(placed["cut"].size());
  const std::string ranks = std::to_string(stages);
  const std::string shown = gradwire({"train", config, "--dry-run", "-n", ranks}).output;
  EXPECT_THAT(shown, HasSubstr(placed["schedule"].get<std::string>() + " with "));
  EXPECT_THAT(shown, HasSubstr("with pipeline.costs"));
  const int first = placed["cut"][0];
  const std::string last_layer = first == 1 ? "embedding" : "block" + std::to_string(first - 2);
  EXPECT_THAT(shown, HasSubstr("stage 0 on rank 0 of the pipeline: embedding to " + last_layer));

  std::string text;
  for (int i = 0; i < 120; ++i) text += "to be, or not to be; ";
  write_file(folder / "text", text);
  const std::string trained = gradwire({"train", config, "-n", ranks, "--data", folder / "text",
                                        "--output", folder / "out"})
                                  .output;
  EXPECT_THAT(trained, HasSubstr("Trained on " + ranks + " ranks"));
}

/// A network makes the warm-up of 1F1B longer: the costs in a configuration say so to the trainer.
TEST(PlanPlace, CostsMakeTheScheduleOfTheTrainer) {
  TemporaryFolder folder;
  const auto shown = [&](const std::string& costs) {
    write_file(folder / "c.json", R"({"mesh": {"pipeline": 2}, "model": {"name": "mlp"},
        "batch_size": 8, "pipeline": {"micro_batches": 8, "schedule": "1f1b")" +
                                      costs + "}}");
    return gradwire({"train", folder / "c.json", "--dry-run", "-n", "2"}).output;
  };
  EXPECT_THAT(shown(""), HasSubstr("rank 0   F0 F1 ."));
  EXPECT_THAT(shown(R"(, "costs": {"forward_ms": [1, 1], "input_ms": [1, 1], "weight_ms": [1, 1],
                                   "transfer_ms": [2], "latency_ms": 0.1})"),
              AllOf(HasSubstr("rank 0   F0 F1 F2 F3 ."), HasSubstr("ms a step")));
  const auto refusal = [&](const std::string& costs) {
    return recipe::parse_train_config(
        json::parse(R"({"mesh": {"pipeline": 2}, "pipeline": {"costs": )" + costs + "}}"));
  };
  EXPECT_THROW(refusal(R"({"forward_ms": [1], "input_ms": [1], "weight_ms": [1]})"), Exception);
  EXPECT_THROW(refusal(R"({"forward_ms": [1, 1], "input_ms": [1], "weight_ms": [1]})"), Exception);
  EXPECT_THROW(refusal(R"({"forward_ms": [0, 1], "input_ms": [1, 1], "weight_ms": [1, 1]})"),
               Exception);
  EXPECT_THROW(refusal(R"({"forward_ms": [1, 1], "input_ms": [1, 1], "weight_ms": [1, 1],
                           "transfer_ms": [1, 1]})"),
               Exception);
}

}  // namespace
}  // namespace gradwire::test
