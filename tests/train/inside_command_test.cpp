#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

/// `gradwire train` on a group in two levels. All ranks are on this host; tests/hosts has several.
namespace gradwire::test {
namespace {

using testing::HasSubstr;

struct InsideCommand : testing::Test {
  InsideCommand() {
    write_image_data(folder.path(), 130, 21);
    // Large enough for two levels: gradients of 100 KB.
    write_file(folder / "mlp.json", R"({
      "batch_size": 16, "epochs": 2, "model": {"name": "mlp", "hidden": 32},
      "optimizer": {"learning_rate": 0.05}})");
  }

  Finished train_with(const std::string& output, const std::vector<std::string>& settings,
                      const std::vector<std::string>& options = {}) {
    std::vector<std::string> command{own_program().parent_path() / "gradwire",
                                     "train",
                                     folder / "mlp.json",
                                     "--data",
                                     folder.path(),
                                     "-n",
                                     "4",
                                     "--output",
                                     folder / output};
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    command.insert(command.end(), options.begin(), options.end());
    return run(command, {{"OMP_NUM_THREADS", "1"}});
  }

  std::vector<double> losses(const std::string& output, const std::vector<std::string>& settings) {
    const Finished done = train_with(output, settings);
    EXPECT_EQ(done.status, 0) << done.output;
    std::ifstream stream(folder / output / "run.json");
    return nlohmann::json::parse(stream)["steps"]["loss"];
  }

  TemporaryFolder folder;
};

TEST_F(InsideCommand, EveryStrategyHasTheSameLosses) {
  for (const std::string strategy :
       {"parallel.overlap=full", "zero.stage=2", "zero.stage=3", "local_steps.steps=2"}) {
    SCOPED_TRACE(strategy);
    const auto flat = losses("flat", {strategy});
    const auto inside = losses("inside", {strategy, "inside=own"});
    EXPECT_THAT(inside, testing::Pointwise(testing::DoubleNear(1e-5), flat));
  }
}

TEST_F(InsideCommand, ResumesFromACheckpoint) {
  const auto whole = losses("whole", {"inside=own"});
  ASSERT_EQ(train_with("part", {"inside=own", "epochs=1", "checkpoint_every=4"}).status, 0);
  const auto rest = losses("part", {"inside=own", "checkpoint_every=4", "resume=auto"});
  ASSERT_FALSE(rest.empty());
  EXPECT_THAT(rest, testing::Pointwise(testing::DoubleNear(1e-7),
                                       std::vector(whole.end() - std::ssize(rest), whole.end())));
}

TEST_F(InsideCommand, SaysWhatIsWrong) {
  const auto error = [&](const std::vector<std::string>& settings) {
    const Finished done = train_with("refused", settings, {"--dry-run"});
    EXPECT_NE(done.status, 0);
    return done.output;
  };
  EXPECT_THAT(error({"inside=shm"}), HasSubstr("inside is \"shm\"; valid is \"own\""));
  EXPECT_THAT(error({"inside=nccl"}), HasSubstr("gradwire.Options(inside=\"nccl\") in Python"));
  for (const std::string setting :
       {"mesh.pipeline=2", "servers.count=1", R"(devices=["cpu"])", "hogwild.threads=2"}) {
    const std::string key = setting.substr(0, setting.find_first_of(".="));
    EXPECT_THAT(error({"inside=own", setting}),
                HasSubstr(key + " is incompatible with inside; leave one of them out"));
  }
  EXPECT_THAT(train_with("dry", {"inside=own"}, {"--dry-run"}).output,
              HasSubstr("hosts exchange the bytes of one rank each"));
}

}  // namespace
}  // namespace gradwire::test
