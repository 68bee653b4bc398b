#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ZeroExample, FindsTheSameLossCurveInEveryStageAndMakesItsPage) {
  const auto* python = std::getenv("GRADWIRE_PYTHON");
  ASSERT_NE(python, nullptr) << "the build sets GRADWIRE_PYTHON";
  const TemporaryFolder folder;
  write_image_data(folder.path(), 96, 16);
  const auto output = folder / "out";
  std::vector<std::string> command{
      python,       std::string(GRADWIRE_SOURCE) + "/examples/zero/run.py",
      "--gradwire", own_program().parent_path() / "gradwire",
      "--output",   output};
  for (const auto& setting : {"data.path=" + folder.path().string(), std::string("batch_size=16"),
                              std::string("epochs=2"), std::string("model.channels=8")}) {
    command.insert(command.end(), {"--set", setting});
  }
  const auto finished = run(command);
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("ZeRO-3 x4"), HasSubstr("all loss curves agree")));
  for (const auto* name :
       {"control", "ddp-x2", "ddp-x4", "zero-1-x4", "zero-2-x4", "zero-3-x2", "zero-3-x4"}) {
    EXPECT_TRUE(std::filesystem::exists(output / name / "run.json")) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(output / "report.html"));
}

}  // namespace
}  // namespace gradwire::test
