#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/safetensors.h"
#include "tests/data/idx_files.h"
#include "tests/data/temporary_folder.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct TrainCommand : ::testing::Test {
  TrainCommand() {
    write_image_data(folder.path(), 330, 101);
    write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": 16}, "batch_size": 32,
                                      "optimizer": {"learning_rate": 0.02}, "epochs": 2})");
  }

  Finished train(std::vector<std::string> arguments) { return train(arguments, folder.path()); }

  Finished train(const std::vector<std::string>& arguments, const std::filesystem::path& data) {
    std::vector<std::string> command{own_program().parent_path() / "gradwire", "train",
                                     folder / "c.json", "--data", data};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run(command);
  }

  TemporaryFolder folder;
};

TEST_F(TrainCommand, TrainsOnSeveralProcesses) {
  const auto finished = train({"-n", "4", "--output", folder / "out", "--set", "epochs=3"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("epoch 3/3  step 10/10"), HasSubstr("Trained on 4 ranks: 30 steps"),
                    HasSubstr("test accuracy"), HasSubstr("of 101 images"), HasSubstr("images/s"),
                    HasSubstr("T_s / (T_s + T_c)"), HasSubstr("1.000 of the textbook's"),
                    HasSubstr("out/model.safetensors")));
  EXPECT_THAT(finished.output, Not(HasSubstr("\r"))) << "no live line where no terminal is";
  const auto checkpoint = load_safetensors(folder / "out" / "model.safetensors");
  EXPECT_EQ(checkpoint.tensors.at("output.weight").sizes(), (at::IntArrayRef{10, 16}));
}

TEST_F(TrainCommand, TrainsAloneWithoutALauncher) {
  const auto finished = train({"--output", folder / "out"});
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("Trained on 1 rank: 20 steps"));
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

TEST_F(TrainCommand, RefusesAWrongConfigurationBeforeItStartsRanks) {
  const auto unknown = train({"-n", "2", "--set", "optimizer.learning_rat=1"});
  EXPECT_NE(unknown.status, 0);
  EXPECT_THAT(unknown.output, AllOf(HasSubstr("learning_rat\""), HasSubstr("\"learning_rate\""),
                                    Not(HasSubstr("[1]"))));
  const auto uneven = train({"-n", "3"});
  EXPECT_NE(uneven.status, 0);
  EXPECT_THAT(uneven.output, HasSubstr("batch_size 32 does not divide by 3 ranks"));
}

TEST_F(TrainCommand, AMissingDataSetIsAnErrorThatSaysWhatToDo) {
  const auto finished = train({"-n", "2"}, folder / "nowhere");
  EXPECT_NE(finished.status, 0);
  EXPECT_THAT(finished.output, HasSubstr("dataset-fashion-mnist"));
}

}  // namespace
}  // namespace gradwire::test
