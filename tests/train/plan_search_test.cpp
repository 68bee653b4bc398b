#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/recipe/train_config.h"
#include "tests/train/subprocess.h"

/// `gradwire train` must accept the output of `gradwire plan --search`.
namespace gradwire::test {
namespace {

using nlohmann::json;

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

}  // namespace
}  // namespace gradwire::test
