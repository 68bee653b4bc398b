#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/checkpoint/manifest.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "tests/cli/launched.h"
#include "tests/support/mortal_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/written_checkpoint.h"

/// `gradwire checkpoint`, as the real program.
namespace gradwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct CheckpointCommand : ::testing::Test {
  CheckpointCommand() {
    for (const int step : {100, 200}) {
      test::write_checkpoint(disk, folder / "out" / "checkpoints", step, 3, step);
    }
  }

  int checkpoint(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {gradwire::test::gradwire_program(), "checkpoint"});
    gradwire::test::Launched launched(arguments);
    const int status = launched.wait();
    out = launched.out();
    err = launched.err();
    return status;
  }

  void damage() {
    const auto file = folder / "out" / "checkpoints" / "step-000200" / "rank-1-of-3.safetensors";
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-7, std::ios::end);
    bytes.put('x');
  }

  test::TemporaryFolder folder;
  test::MortalDisk disk{-1, false};
  std::string out, err;
};

TEST_F(CheckpointCommand, ListsThemTheNewestLast) {
  EXPECT_EQ(checkpoint({"list", folder / "out"}), 0) << err;
  EXPECT_LT(out.find("step-000100"), out.find("step-000200"));
  EXPECT_EQ(checkpoint({"list", folder / "nowhere"}), 1);
  EXPECT_THAT(err, HasSubstr("no such checkpoint"));
}

TEST_F(CheckpointCommand, ShowsWhatOneHolds) {
  EXPECT_EQ(checkpoint({"show", folder / "out", "--verify"}), 0) << err;
  EXPECT_THAT(out, AllOf(HasSubstr("step      200"), HasSubstr("hidden.weight"),
                         HasSubstr("[600, 10]"), HasSubstr(R"({"name":"mlp"})"),
                         HasSubstr("rank-2-of-3.safetensors"), HasSubstr("verified")));
  damage();
  EXPECT_EQ(checkpoint({"show", folder / "out"}), 0) << err;
  EXPECT_EQ(checkpoint({"show", folder / "out", "--verify"}), 1);
  EXPECT_THAT(err, HasSubstr("rank-1-of-3.safetensors"));
}

TEST_F(CheckpointCommand, ListAndShowAgreeAboutADamagedManifest) {
  const auto damaged = folder / "out" / "checkpoints" / "step-000200";
  const auto manifest = damaged / checkpoint::kManifestName;
  std::filesystem::resize_file(manifest, 700);
  const auto says_what_to_do =
      AllOf(HasSubstr(manifest.string()), HasSubstr("remove " + damaged.string()),
            HasSubstr("checkpoints/step-000100"));
  EXPECT_EQ(checkpoint({"list", folder / "out"}), 1);
  EXPECT_THAT(out, AllOf(HasSubstr("damaged  " + manifest.string()), HasSubstr("step-000100")));
  EXPECT_THAT(err, says_what_to_do);
  for (const std::vector<std::string>& options : {std::vector<std::string>{}, {"--verify"}}) {
    std::vector<std::string> arguments{"show", folder / "out"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    EXPECT_EQ(checkpoint(arguments), 1);
    EXPECT_THAT(out, Not(HasSubstr("verified")));
    EXPECT_THAT(err, says_what_to_do);
  }
  EXPECT_EQ(checkpoint({"consolidate", folder / "out", "-o", folder / "model"}), 1);
  EXPECT_THAT(err, says_what_to_do);
  const auto older = folder / "out" / "checkpoints" / "step-000100";
  EXPECT_EQ(checkpoint({"show", older, "--verify"}), 0) << err;
}

TEST_F(CheckpointCommand, ConsolidatesTheNewestOrTheOneNamed) {
  const auto file = folder / "model.safetensors";
  EXPECT_EQ(checkpoint({"consolidate", folder / "out", "-o", file}), 0) << err;
  EXPECT_EQ(checkpoint::read_safetensors_header(file).metadata.at("step"), "200");
  EXPECT_EQ(checkpoint::read_safetensors_header(file).tensors.size(), 3u);
  const auto older = folder / "out" / "checkpoints" / "step-000100";
  EXPECT_EQ(checkpoint({"consolidate", older, "--output", file, "--with-optimizer"}), 0) << err;
  EXPECT_EQ(checkpoint::read_safetensors_header(file).metadata.at("step"), "100");
  EXPECT_EQ(checkpoint::read_safetensors_header(file).tensors.size(), 5u);
}

TEST_F(CheckpointCommand, LeavesTheFileThatWasThereIfItCannot) {
  damage();
  const auto file = folder / "model.safetensors";
  std::ofstream(file) << "before";
  EXPECT_EQ(checkpoint({"consolidate", folder / "out", "-o", file}), 1);
  EXPECT_THAT(err, AllOf(HasSubstr("gradwire checkpoint: "), HasSubstr("CRC-32C")));
  EXPECT_EQ(std::filesystem::file_size(file), 6u);
}

TEST_F(CheckpointCommand, AWrongCommandLineIsExplained) {
  EXPECT_EQ(checkpoint({}), 2);
  EXPECT_EQ(checkpoint({"consolidte", "x"}), 2);
  EXPECT_EQ(checkpoint({"consolidate"}), 2);
  EXPECT_THAT(err, HasSubstr("folder"));
}

}  // namespace
}  // namespace gradwire::cli
