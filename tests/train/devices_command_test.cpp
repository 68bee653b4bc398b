#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

/// `gradwire train` with several devices in a process.
namespace gradwire::test {
namespace {

using testing::HasSubstr;

const char* const kTwoDevices = R"(devices=["cpu", "cpu"])";

struct DevicesCommand : testing::Test {
  DevicesCommand() {
    write_image_data(folder.path(), 130, 21);
    write_file(folder / "mlp.json", R"({
      "batch_size": 16, "epochs": 2, "model": {"name": "mlp", "hidden": 16}, "evaluate_every": 1,
      "schedule": {"warmup_epochs": 1, "decay": "cosine"}, "optimizer": {"learning_rate": 0.05}})");
  }

  Finished train_with(const std::string& output, const std::string& processes,
                      const std::vector<std::string>& settings,
                      const std::vector<std::string>& options = {}) {
    std::vector<std::string> command{own_program().parent_path() / "gradwire",
                                     "train",
                                     folder / "mlp.json",
                                     "--data",
                                     folder.path(),
                                     "-n",
                                     processes,
                                     "--output",
                                     folder / output,
                                     "--json",
                                     folder / (output + ".json")};
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    command.insert(command.end(), options.begin(), options.end());
    return run(command,
               {{"OMP_NUM_THREADS", "1"}, {"GRADWIRE_ALGORITHM", "all_reduce=recursive_doubling"}});
  }

  std::string model(const std::string& output) {
    return read_file(folder / output / "model.safetensors").value();
  }

  nlohmann::json content(const std::string& file) {
    std::ifstream stream(folder / file);
    return nlohmann::json::parse(stream);
  }

  /// Trains on processes with one device each, and on as many devices of fewer processes.
  void expect_same_bits(const std::string& ranks, const std::string& processes,
                        std::vector<std::string> settings) {
    const auto apart = train_with("apart", ranks, settings);
    ASSERT_EQ(apart.status, 0) << apart.output;
    settings.emplace_back(kTwoDevices);
    const auto together = train_with("together", processes, settings);
    ASSERT_EQ(together.status, 0) << together.output;
    EXPECT_EQ(model("together"), model("apart"));
    for (const char* key : {"ranks", "steps", "test_loss", "test_accuracy"})
      EXPECT_EQ(content("together.json")[key], content("apart.json")[key]) << key;
  }

  TemporaryFolder folder;
};

TEST_F(DevicesCommand, TwoHaveTheBitsOfTwoProcessesWithEveryStrategy) {
  for (const std::string strategy :
       {"seed=2", "zero.stage=1", "zero.stage=3", "local_steps.steps=2", "codec=int8"}) {
    SCOPED_TRACE(strategy);
    expect_same_bits("2", "1", {strategy, "parallel.codec_min_elements=1"});
  }
}

TEST_F(DevicesCommand, TwoProcessesOfTwoHaveTheBitsOfFour) {
  expect_same_bits("4", "2", {});
}

TEST_F(DevicesCommand, ResumesAndTraces) {
  const std::vector<std::string> settings{kTwoDevices, "checkpoint_every=8"};
  ASSERT_EQ(train_with("whole", "1", settings).status, 0);
  const auto resumed = train_with(
      "resumed", "1",
      {kTwoDevices, "resume=" + (folder / "whole/checkpoints").string(), "trace=trace.json"});
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_EQ(model("resumed"), model("whole"));
  const nlohmann::json trace = content("resumed/trace.json");
  std::set<int> ranks;
  for (const auto& event : trace["traceEvents"]) ranks.insert(event.value("pid", -1));
  EXPECT_TRUE(ranks.contains(0) && ranks.contains(1));
}

TEST_F(DevicesCommand, RefusesWhatDevicesOfAProcessDoNotHave) {
  for (const auto& [setting, named] : std::vector<std::pair<std::string, std::string>>{
           {"mesh.pipeline=2", "mesh is incompatible with devices"},
           {"hogwild.threads=1", "hogwild is incompatible with devices"},
           {"servers.count=1", "servers is incompatible with devices"},
           {"model.dropout=0.5", "model.dropout 0.5"},
           {"batch_size=3", "batch_size 3 is not divisible by 2 ranks"},
           {R"(devices=[])", "devices is empty"},
           {R"(devices=["cpu:0"])", "\"cpu:0\" is none"},
           {R"(devices=["cpu", "cuda:1"])", "cpu and cuda:1 are of different types"}}) {
    const auto refused = train_with("refused", "1", {kTwoDevices, setting});
    EXPECT_NE(refused.status, 0) << setting;
    EXPECT_THAT(refused.output, HasSubstr(named));
  }
  const auto lacking = train_with("refused", "1", {R"(devices=["warp:0"])"});
  EXPECT_NE(lacking.status, 0);
  EXPECT_THAT(lacking.output, HasSubstr("devices: warp:0"));
  const auto planned = train_with("planned", "2", {kTwoDevices}, {"--dry-run"});
  EXPECT_THAT(planned.output, HasSubstr("4 ranks"));
  EXPECT_THAT(planned.output, HasSubstr("devices of each process: cpu, cpu"));
}

}  // namespace
}  // namespace gradwire::test
