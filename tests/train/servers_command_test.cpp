#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/recipe/servers_advice.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

/// `gradwire train` with parameter servers, in processes.
namespace gradwire::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Settings = std::vector<std::string>;

struct ServersCommand : testing::Test {
  ServersCommand() {
    write_image_data(folder.path(), 130, 21);
    write_file(folder / "mlp.json", R"({
      "batch_size": 16, "epochs": 3, "model": {"name": "mlp", "hidden": 16},
      "schedule": {"warmup_epochs": 1, "decay": "cosine"},
      "optimizer": {"name": "adam", "learning_rate": 0.01}})");
  }

  Finished train(int ranks, const Settings& settings, const std::string& output,
                 const std::map<std::string, std::string>& variables = {}) {
    Settings command{own_program().parent_path() / "gradwire",
                     "train",
                     folder / "mlp.json",
                     "--data",
                     folder.path(),
                     "-n",
                     std::to_string(ranks),
                     "--output",
                     folder / output,
                     "--json",
                     folder / (output + ".json")};
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    return run(command, variables);
  }

  std::string model(const std::string& output) {
    return read_file(folder / output / "model.safetensors").value();
  }

  nlohmann::json summary(const std::string& output) {
    std::ifstream stream(folder / (output + ".json"));
    return nlohmann::json::parse(stream);
  }

  TemporaryFolder folder;
};

TEST_F(ServersCommand, HaveTheModelOfDataParallelismInModeSync) {
  const auto plain = train(2, {}, "plain", {{"GRADWIRE_ALGORITHM", "all_reduce=exchange"}});
  ASSERT_EQ(plain.status, 0) << plain.output;
  for (const std::string servers : {"1", "2"}) {
    const auto served =
        train(2 + std::stoi(servers), {"servers.count=" + servers}, "served" + servers);
    ASSERT_EQ(served.status, 0) << served.output;
    EXPECT_EQ(model("served" + servers), model("plain")) << servers;
    EXPECT_THAT(served.output, HasSubstr("Trained on 2 ranks"));
    EXPECT_EQ(summary("served" + servers)["staleness"]["max"], 0);
  }
}

TEST_F(ServersCommand, ReportStaleness) {
  const auto served = train(4,
                            {"servers.place=workers", "servers.mode=async", "servers.rate=inverse",
                             "optimizer.learning_rate=0.001"},
                            "loose");
  ASSERT_EQ(served.status, 0) << served.output;
  EXPECT_THAT(served.output, HasSubstr("staleness            mean"));
  EXPECT_THAT(served.output, HasSubstr("acts like a momentum of 1 - 1/4 = 0.75"));
  const auto staleness = summary("loose")["staleness"];
  EXPECT_GT(staleness["mean"], 0);
  EXPECT_GE(staleness["max"], staleness["p99"]);
  EXPECT_GE(staleness["p99"], staleness["p50"]);
  EXPECT_LE(staleness["rate"], 1);
  std::ifstream record(folder / "loose" / "run.json");
  EXPECT_EQ(nlohmann::json::parse(record)["strategy"], "4 servers, async x4");
  const auto report = run({own_program().parent_path() / "gradwire", "report", folder / "loose",
                           "-o", folder / "page.html"});
  EXPECT_EQ(report.status, 0) << report.output;
}

TEST_F(ServersCommand, RefuseWhatTheyCannotDo) {
  const auto error = [this](int ranks, const std::string& setting) {
    const auto finished = train(ranks, {"servers.count=1", setting}, "refused");
    EXPECT_NE(finished.status, 0) << setting;
    return finished.output;
  };
  EXPECT_THAT(error(3, "zero.stage=1"), HasSubstr("zero is incompatible with servers"));
  EXPECT_THAT(error(3, "mesh.pipeline=2"), HasSubstr("mesh"));
  EXPECT_THAT(error(3, "gradient_clipping=1"),
              HasSubstr("gradient_clipping is incompatible with servers"));
  EXPECT_THAT(error(3, "parallel.codec=int8"),
              HasSubstr("parallel.codec is incompatible with servers"));
  EXPECT_THAT(error(3, "checkpoint_every=2"),
              HasSubstr("checkpoint_every is incompatible with servers"));
  EXPECT_THAT(error(3, "servers.staleness=2"), HasSubstr("needs servers.mode \"ssp\""));
  EXPECT_THAT(error(3, "servers.use=0.9"), HasSubstr("it takes at least 10 workers"));
  EXPECT_THAT(error(1, "servers.mode=sync"), HasSubstr("at least one rank must work"));
}

TEST(ServersAdvice, NamesWhatAsynchronyNeeds) {
  recipe::TrainConfig config;
  config.servers = {.enabled = true, .mode = "async"};
  EXPECT_THAT(recipe::advice_on_servers(config, 4),
              ElementsAre(HasSubstr("servers.scale 0.25 (1/4)"), HasSubstr("optimizer's 0.9")));
  config.servers.scale = 0.25;
  config.optimizer.momentum = 0;
  EXPECT_THAT(recipe::advice_on_servers(config, 4), IsEmpty());
  EXPECT_THAT(recipe::advice_on_servers(config, 9), ElementsAre(HasSubstr("8 updates")));
  config.servers.mode = "sync";
  EXPECT_THAT(recipe::advice_on_servers(config, 9), IsEmpty());
}

}  // namespace
}  // namespace gradwire::test
