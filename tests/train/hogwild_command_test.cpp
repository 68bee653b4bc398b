#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/cpu.h"
#include "gradwire/base/file.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

/// `gradwire train` with threads that share the parameters.
namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct HogwildCommand : testing::Test {
  HogwildCommand() {
    write_image_data(folder.path(), 130, 21);
    write_file(folder / "mlp.json", R"({
      "batch_size": 16, "epochs": 3, "model": {"name": "mlp", "hidden": 16},
      "schedule": {"warmup_epochs": 1, "decay": "cosine"},
      "optimizer": {"learning_rate": 0.1, "momentum": 0, "weight_decay": 0.01}})");
  }

  Finished train(const std::string& output, const std::vector<std::string>& settings,
                 const std::vector<std::string>& options = {"-n", "1"}) {
    std::vector<std::string> command{own_program().parent_path() / "gradwire",
                                     "train",
                                     folder / "mlp.json",
                                     "--data",
                                     folder.path(),
                                     "--output",
                                     folder / output,
                                     "--json",
                                     folder / (output + ".json")};
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    command.insert(command.end(), options.begin(), options.end());
    return run(command, {{"OMP_NUM_THREADS", "1"}});
  }

  std::string model(const std::string& output) {
    return read_file(folder / output / "model.safetensors").value();
  }

  nlohmann::json content(const std::string& file) {
    std::ifstream stream(folder / file);
    return nlohmann::json::parse(stream);
  }

  TemporaryFolder folder;
};

TEST_F(HogwildCommand, HasTheModelOfAPlainRunWithOneThread) {
  for (const std::string optimizer :
       {"optimizer.nesterov=false", R"(optimizer={"name": "adagrad", "weight_decay": 0.01})",
        R"(optimizer.groups=[{"match": "*.bias", "learning_rate": 0.3}])",
        R"(optimizer={"momentum": 0, "learning_rate_scaling": "linear", "base_batch_size": 4})"}) {
    // Without samples at the end of an epoch that fill no batch.
    const auto plain = train("plain", {optimizer, "data.limit=128"});
    ASSERT_EQ(plain.status, 0) << plain.output;
    const auto alone = train("alone", {optimizer, "data.limit=128", "hogwild.threads=1"});
    ASSERT_EQ(alone.status, 0) << alone.output;
    EXPECT_EQ(model("alone"), model("plain")) << optimizer;
    EXPECT_EQ(content("alone.json")["test_loss"], content("plain.json")["test_loss"]);
    EXPECT_EQ(content("alone.json")["hogwild"]["lost"], 0);
  }
}

/// 130 samples in batches of 8 are 17 steps an epoch.
TEST_F(HogwildCommand, UsesEachSampleOnceAnEpoch) {
  const std::vector<std::string> settings{"hogwild.threads=2", "hogwild.oversubscribe=true",
                                          "evaluate_every=1"};
  const auto trained = train("both", settings);
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(trained.output,
              AllOf(HasSubstr("2 threads take 2 steps of 8 samples where one takes a step of 16"),
                    HasSubstr("epoch 2/3  test accuracy"), HasSubstr("51 steps"),
                    HasSubstr("lost updates         about ")));
  const auto summary = content("both.json");
  EXPECT_EQ(summary["steps"], 51);
  EXPECT_GT(summary["images_per_second"], 0);
  EXPECT_EQ(summary["hogwild"]["threads"], 2);
  EXPECT_GT(summary["hogwild"]["updates"], 0);
  EXPECT_LE(summary["hogwild"]["sampled"], summary["hogwild"]["updates"]);
  EXPECT_EQ(content("both/run.json")["strategy"], "Hogwild x2");
  EXPECT_FALSE(model("both").empty());
  const auto dry = train("dry", settings, {"-n", "1", "--dry-run"});
  EXPECT_THAT(dry.output, HasSubstr("hogwild: 2 threads that share the parameters, batches of 8"));
}

TEST_F(HogwildCommand, RefusesWhatDoesNotFit) {
  const std::string two = "hogwild.threads=2", all = "hogwild.oversubscribe=true";
  const auto error = [&](const std::vector<std::string>& settings,
                         const std::vector<std::string>& options) {
    const auto finished = train("refused", settings, options);
    EXPECT_NE(finished.status, 0);
    return finished.output;
  };
  EXPECT_THAT(error({two, all}, {"-n", "2"}),
              AllOf(HasSubstr("not of 2 ranks"), HasSubstr("use -n 1")));
  EXPECT_THAT(error({two, all, "batch_size=15"}, {"-n", "1"}),
              HasSubstr("batch_size 15 is not divisible by 2 threads; make it a multiple of 2"));
  EXPECT_THAT(error({two, all}, {"-n", "1", "--trace", folder / "trace.json"}),
              HasSubstr("--trace has one thread of each rank"));
  const std::string many = std::to_string(usable_cores() + 1);
  EXPECT_THAT(error({"hogwild.threads=" + many}, {"-n", "1"}),
              AllOf(HasSubstr("hogwild: " + many + " threads on"), HasSubstr("oversubscribe")));
}

}  // namespace
}  // namespace gradwire::test
