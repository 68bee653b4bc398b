#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/recipe/replay.h"
#include "gradwire/recipe/servers_advice.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/subprocess.h"

/// `gradwire train` with parameter servers, in processes.
namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Settings = std::vector<std::string>;

/// A worker has one thread in the run, and so also in a replay.
const std::map<std::string, std::string> kOneThread{{"OMP_NUM_THREADS", "1"}};

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
                     folder / configuration,
                     "-n",
                     std::to_string(ranks),
                     "--output",
                     folder / output,
                     "--json",
                     folder / (output + ".json")};
    if (configuration == "mlp.json") command.insert(command.end(), {"--data", folder.path()});
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    return run(command, variables);
  }

  /// Replays the run of that output folder.
  Finished replay(const std::string& output, const Settings& more = {}) {
    Settings command{own_program().parent_path() / "gradwire",
                     "train",
                     "--replay",
                     folder / output / "order.bin",
                     "--output",
                     folder / "replay"};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  }

  Finished train_and_kill(const std::string& rank, int ranks, int servers,
                          const Settings& settings);

  std::string model(const std::string& output) {
    return read_file(folder / output / "model.safetensors").value();
  }

  /// The oldest one first.
  std::vector<std::filesystem::path> checkpoints(const std::string& output) {
    std::vector<std::filesystem::path> saved;
    for (const auto& each : std::filesystem::directory_iterator(folder / output / "checkpoints")) {
      saved.push_back(each.path());
    }
    std::ranges::sort(saved);
    return saved;
  }

  /// State of the run, of its newest checkpoint.
  nlohmann::json newest_run(const std::string& output) {
    std::ifstream stream(checkpoints(output).back() / "manifest.json");
    return nlohmann::json::parse(stream)["run"];
  }

  nlohmann::json summary(const std::string& output) {
    std::ifstream stream(folder / (output + ".json"));
    return nlohmann::json::parse(stream);
  }

  TemporaryFolder folder;
  std::string configuration = "mlp.json";  ///< In the folder.
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

TEST_F(ServersCommand, HaveThatModelWithOtherSettings) {
  const std::map<std::string, std::string> exchange{{"GRADWIRE_ALGORITHM", "all_reduce=exchange"},
                                                    {"OMP_NUM_THREADS", "1"}};
  const std::string groups =
      R"(optimizer.groups=[{"match": ["*.bias"], "learning_rate": 0.02, "weight_decay": 0}])";
  for (const Settings& settings :
       {Settings{"model={\"name\": \"resnet\", \"channels\": 8}",
                 "activation_checkpointing.number_checkpoints=2", groups, "epochs=1"},
        Settings{"precision=bf16", "accumulation_steps=2", "parallel.overlap=none"}}) {
    const auto plain = train(2, settings, "plain", exchange);
    ASSERT_EQ(plain.status, 0) << plain.output;
    Settings with = settings;
    with.push_back("servers.count=2");
    const auto served = train(4, with, "served", exchange);
    ASSERT_EQ(served.status, 0) << served.output;
    EXPECT_EQ(model("served"), model("plain")) << settings.front();
  }
}

/// 128 samples in batches of 16, in the order of data parallelism.
TEST_F(ServersCommand, AGroupOfAllWorkersHasTheModelOfDataParallelism) {
  const std::map<std::string, std::string> alike{
      {"GRADWIRE_ALGORITHM", "all_reduce=halving_doubling,reduce_scatter=recursive_halving"},
      {"OMP_NUM_THREADS", "1"}};
  const Settings settings{"data.limit=128", "schedule.decay=constant", "schedule.warmup_epochs=0"};
  const auto plain = train(4, settings, "plain", alike);
  ASSERT_EQ(plain.status, 0) << plain.output;
  for (const std::string place : {"own", "workers"}) {
    Settings with = settings;
    with.insert(with.end(), {"servers.count=2", "servers.place=" + place, "servers.mode=async",
                             "servers.groups=1"});
    const auto served = train(place == "own" ? 6 : 4, with, "served", alike);
    ASSERT_EQ(served.status, 0) << served.output;
    EXPECT_EQ(model("served"), model("plain")) << place;
    EXPECT_EQ(summary("served")["staleness"]["max"], 0);
  }
}

/// 130 samples in batches of 8 are 17 an epoch, of which the last has 2 samples for 2 workers.
TEST_F(ServersCommand, OfTwoGroupsHaveAMeanStalenessOfOne) {
  const auto served = train(
      5,
      {"servers.mode=async", "servers.groups=2", "epochs=40", "evaluate_every=10", "batch_size=16"},
      "groups");
  ASSERT_EQ(served.status, 0) << served.output;
  const auto run = summary("groups");
  EXPECT_EQ(run["steps"], 40 * 17);
  EXPECT_NEAR(run["staleness"]["mean"].get<double>(), 1, 0.01);
  EXPECT_EQ(run["staleness"]["by_worker"]["mean"].size(), 2);
  EXPECT_NEAR(run["staleness"]["predicted"]["mean"].get<double>(), 1, 0.01);
  EXPECT_THAT(served.output, HasSubstr("epoch 30/40  test accuracy"));
  std::ifstream record(folder / "groups" / "run.json");
  EXPECT_EQ(nlohmann::json::parse(record)["strategy"], "1 server, async x4 in 2 groups");
  const auto local =
      train(5, {"servers.mode=ssp:1", "servers.groups=2", "local_steps.steps=4"}, "local");
  EXPECT_EQ(local.status, 0) << local.output;
}

TEST_F(ServersCommand, TrainWithAdagradAsDataParallelismAndZeroDo) {
  const std::map<std::string, std::string> exchange{{"GRADWIRE_ALGORITHM", "all_reduce=exchange"},
                                                    {"OMP_NUM_THREADS", "1"}};
  const Settings adagrad{
      R"(optimizer={"name": "adagrad", "learning_rate": 0.02, "epsilon": 1e-8, "groups": [
         {"match": "*.weight", "weight_decay": 0.01}]})"};
  const auto plain = train(2, adagrad, "plain", exchange);
  ASSERT_EQ(plain.status, 0) << plain.output;
  for (const auto& [ranks, way] :
       std::vector<std::pair<int, std::string>>{{2, "zero.stage=1"},
                                                {2, "zero.stage=3"},
                                                {3, "servers.count=1"},
                                                {2, "servers.place=workers"}}) {
    Settings with = adagrad;
    with.push_back(way);
    const auto other = train(ranks, with, "other", exchange);
    ASSERT_EQ(other.status, 0) << other.output;
    EXPECT_EQ(model("other"), model("plain")) << way;
  }
  EXPECT_EQ(train(2, {}, "adam", exchange).status, 0);
  EXPECT_NE(model("adam"), model("plain"));
}

TEST_F(ServersCommand, HaveCodecsOfGradientsAndParameters) {
  ASSERT_EQ(train(3, {"servers.count=1"}, "plain").status, 0);
  const auto coded = train(3, {"codec=int8", "servers.pull_codec=bf16"}, "coded");
  ASSERT_EQ(coded.status, 0) << coded.output;
  EXPECT_THAT(coded.output, HasSubstr("as int8, in mode sync"));
  EXPECT_LT(summary("coded")["sent_bytes_per_step"].get<double>(),
            summary("plain")["sent_bytes_per_step"].get<double>() / 3);
  for (const Settings& settings :
       {Settings{"servers.mode=async", "servers.groups=2", "codec=top_k:0.1",
                 "servers.pull_codec=bf16", "parallel.codec_warmup_steps=10"},
        Settings{"servers.mode=ssp:1", "local_steps.steps=4", "local_steps.codec=int8"}}) {
    const auto finished = train(5, settings, "other");
    EXPECT_EQ(finished.status, 0) << finished.output;
  }
}

/// The residuals of error feedback belong to a checkpoint.
TEST_F(ServersCommand, ResumeWithACodecToTheSameBits) {
  const Settings settings{"codec=top_k:0.1", "checkpoint_every=8", "servers.count=2"};
  const std::map<std::string, std::string> one_thread{{"OMP_NUM_THREADS", "1"}};
  ASSERT_EQ(train(4, settings, "whole", one_thread).status, 0);
  Settings resumed = settings;
  resumed.push_back("resume=" + (folder / "whole" / "checkpoints" / "step-000016").string());
  const auto finished = train(4, resumed, "resumed", one_thread);
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_TRUE(model("resumed") == model("whole"));  // Its bytes would fill the log.
}

/// Versions go on, and so do the seeds of a codec that rounds at random.
TEST_F(ServersCommand, ResumeWithTheVersionsOfShards) {
  const auto version = [this](const std::string& output) {
    return summary(output)["staleness"]["version"].get<int>();
  };
  const Settings sync{"codec=int8", "parallel.codec_warmup_steps=10", "checkpoint_every=8",
                      "servers.count=2"};
  ASSERT_EQ(train(4, sync, "whole", kOneThread).status, 0);
  const auto resumed = [&](int ranks, const std::string& from, Settings settings) {
    settings.push_back("resume=" + (folder / from / "checkpoints").string());
    const auto finished = train(ranks, settings, "resumed", kOneThread);
    EXPECT_EQ(finished.status, 0) << finished.output;
    return version("resumed");
  };
  EXPECT_EQ(version("whole"), 24);
  EXPECT_EQ(newest_run("whole")["model"]["versions"], (nlohmann::json{{24, 24}, {24, 24}}))
      << "of two units on each server";
  std::filesystem::remove_all(folder / "whole" / "checkpoints" / "step-000024");
  EXPECT_EQ(resumed(4, "whole", sync), 24);
  EXPECT_TRUE(model("resumed") == model("whole"));
  EXPECT_EQ(resumed(3, "whole", {"servers.count=1"}), 24) << "one server after two";
  const Settings loose{"servers.mode=async", "servers.count=2", "checkpoint_every=1000"};
  ASSERT_EQ(train(4, loose, "loose").status, 0);
  const int updates = summary("loose")["steps"].get<int>();
  EXPECT_EQ(version("loose"), updates);
  const int later = resumed(3, "loose", {"servers.mode=ssp:1", "epochs=4"});
  EXPECT_EQ(later, updates + summary("resumed")["steps"].get<int>());
  EXPECT_EQ(resumed(3, "loose", {"servers.count=1", "epochs=4"}), updates + 8) << "in mode sync";
}

/// Model "dlrm": rows on servers of their own, and a pipeline.
TEST_F(ServersCommand, HaveTheRowsOfDataParallelism) {
  write_file(folder / "clicks.json", R"({
    "data": {"name": "click_through", "samples": 1024, "rows": 300, "fields": 3, "dense": 2},
    "model": {"width": 4, "hidden": 8}, "batch_size": 32, "epochs": 2,
    "optimizer": {"learning_rate": 0.1, "momentum": 0}})");
  configuration = "clicks.json";
  const auto trained = [&](int ranks, const Settings& settings, const std::string& output) {
    const auto finished = train(ranks, settings, output);
    EXPECT_EQ(finished.status, 0) << finished.output;
    return summary(output);
  };
  const double loss = trained(2, {}, "plain")["test_loss"];
  EXPECT_NEAR(trained(2, {"mesh.pipeline=2"}, "pipeline")["test_loss"], loss, 1e-4);
  const Settings rows{"servers.count=2", "servers.embeddings.optimizer=sgd",
                      "servers.embeddings.learning_rate=0.1"};
  const auto served = trained(4, rows, "rows");
  EXPECT_NEAR(served["test_loss"], loss, 1e-4);
  EXPECT_EQ(served["rows"]["permits_max"], 1);
  EXPECT_GT(served["rows"]["made"], 100);
  EXPECT_FALSE(served.contains("staleness"));
  Settings saving = rows;
  saving.insert(saving.end(), {"checkpoint_every=32", "epochs=1"});
  const auto half = trained(4, saving, "half");
  saving.insert(saving.end(), {"servers.count=1", "epochs=2", "resume=auto"});
  const auto resumed = trained(3, saving, "half");
  EXPECT_EQ(resumed["steps"], 32);
  EXPECT_GE(resumed["rows"]["made"], half["rows"]["made"]);
  EXPECT_EQ(model("half"), model("rows"));
}

/// Only the named units are stale, and a checkpoint has them as the servers do.
TEST_F(ServersCommand, HaveAsynchronousUnitsBesideSynchronousOnes) {
  const Settings settings{"servers.count=1", "checkpoint_every=8"};
  Settings units = settings;
  units.insert(units.end(), {"servers.units=output", "servers.scale=0.5"});
  const auto trained = train(3, units, "units");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(trained.output, Not(HasSubstr("warning: 2 workers take 2 steps")));
  EXPECT_NEAR(summary("units")["staleness"]["mean"].get<double>(), 1, 0.3);
  EXPECT_FALSE(summary("units")["staleness"].contains("predicted"));
  std::ifstream record(folder / "units" / "run.json");
  EXPECT_EQ(nlohmann::json::parse(record)["strategy"], "1 server, sync x2 with asynchronous units");
  units.push_back("resume=" + (folder / "units" / "checkpoints" / "step-000016").string());
  const auto resumed = train(3, units, "resumed");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
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
  EXPECT_EQ(staleness["by_worker"]["mean"].size(), 4);
  const auto by_unit = staleness["by_unit"]["max"].get<std::vector<int>>();
  EXPECT_EQ(std::ranges::max(by_unit), staleness["max"]);
  EXPECT_NEAR(staleness["predicted"]["mean"].get<double>(), 3, 0.1);
  EXPECT_EQ(staleness["predicted"]["late"], 0);
  EXPECT_THAT(served.output, AllOf(HasSubstr("of worker "), HasSubstr("predicted staleness")));
  EXPECT_FALSE(staleness.contains("advice"));
  std::ifstream record(folder / "loose" / "run.json");
  EXPECT_EQ(nlohmann::json::parse(record)["strategy"], "4 servers, async x4");
  const auto report = run({own_program().parent_path() / "gradwire", "report", folder / "loose",
                           "-o", folder / "page.html"});
  EXPECT_EQ(report.status, 0) << report.output;
}

/// 130 samples in batches of 4 are 33 an epoch.
TEST_F(ServersCommand, ApplyEachSampleOnceWithoutCommonSteps) {
  for (const std::string mode : {"async", "ssp:0", "ssp", "sync"}) {
    Settings settings{"servers.mode=" + mode, "evaluate_every=1"};
    if (mode == "ssp") settings.push_back("servers.staleness=2");
    if (mode == "sync") settings.push_back("servers.use=0.75");
    const auto served = train(5, settings, "dealt");
    ASSERT_EQ(served.status, 0) << served.output;
    EXPECT_THAT(served.output, HasSubstr("epoch 2/3  test accuracy"));
    const auto run = summary("dealt");
    if (mode == "sync") {
      EXPECT_GT(run["staleness"]["late"], 0);
    } else {
      EXPECT_EQ(run["steps"], 3 * 33) << mode;
    }
    EXPECT_FALSE(model("dealt").empty());
  }
}

TEST_F(ServersCommand, AccumulateThePartsOfUnevenBatches) {
  const auto served = train(
      2, {"servers.place=workers", "servers.mode=async", "accumulation_steps=4", "data.limit=77"},
      "parts");
  ASSERT_EQ(served.status, 0) << served.output;
  EXPECT_EQ(summary("parts")["steps"], 3 * 10);
}

TEST_F(ServersCommand, ResumeWithOtherNumbersOfServersOrNone) {
  const auto whole =
      train(3, {"servers.count=1", "checkpoint_every=10", "checkpoint_keep=0"}, "whole");
  ASSERT_EQ(whole.status, 0) << whole.output;
  const std::string resume = "resume=" + (folder / "whole/checkpoints/step-000010").string();
  for (const auto& [ranks, settings] :
       std::vector<std::pair<int, Settings>>{{4, {"servers.count=2", resume}},
                                             {2, {"servers.place=workers", resume}},
                                             {2, {resume}},
                                             {2, {"zero.stage=1", resume}}}) {
    const auto resumed = train(ranks, settings, "resumed");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("after 10 steps"));
    EXPECT_EQ(model("resumed"), model("whole")) << settings.front();
  }
}

/// The first 16 samples of 130 are not dealt again.
/// Servers on ranks of their own, as many as workers: then norms have the bits of ZeRO's.
TEST_F(ServersCommand, TakeNormsOverAllServers) {
  for (const Settings& settings :
       {Settings{"optimizer.name=lars", "optimizer.learning_rate=1", "epochs=2"},
        Settings{"gradient_clipping=0.1", "epochs=2"},
        Settings{"optimizer.name=lamb", "gradient_clipping=1", "checkpoint_every=10",
                 "checkpoint_keep=0"}}) {
    const auto with = [&](Settings more) {
      more.insert(more.begin(), settings.begin(), settings.end());
      return more;
    };
    const auto zero = train(2, with({"zero.stage=1"}), "zero");
    ASSERT_EQ(zero.status, 0) << zero.output;
    const auto served = train(4, with({"servers.count=2"}), "served");
    ASSERT_EQ(served.status, 0) << served.output;
    EXPECT_EQ(model("served"), model("zero")) << settings.front();
  }
  // The last ones had LAMB.
  const std::string resume = "resume=" + (folder / "served/checkpoints/step-000010").string();
  const Settings lamb{"optimizer.name=lamb", "gradient_clipping=1", resume};
  for (const auto& [ranks, setting] : std::vector<std::pair<int, std::string>>{
           {2, "servers.place=workers"}, {2, "zero.stage=1"}}) {
    const auto resumed = train(ranks, {lamb[0], lamb[1], lamb[2], setting}, "resumed");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("after 10 steps"));
    EXPECT_EQ(model("resumed"), model("served")) << setting;
  }
  for (const auto& [ranks, setting] :
       std::vector<std::pair<int, std::string>>{{5, "servers.count=3"}, {2, "epochs=3"}}) {
    const auto resumed = train(ranks, {lamb[0], lamb[1], lamb[2], setting}, "resumed");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_NEAR(summary("resumed")["test_loss"], summary("served")["test_loss"], 1e-3) << setting;
  }
}

TEST_F(ServersCommand, RefuseNormsOverServersThatStepAlone) {
  const auto error = [this](const Settings& settings) {
    const auto finished = train(5, settings, "refused");
    EXPECT_NE(finished.status, 0);
    return finished.output;
  };
  EXPECT_THAT(error({"servers.mode=async", "gradient_clipping=1"}),
              HasSubstr("gradient_clipping takes norms of one step's gradients over all servers, "
                        "and with servers.mode \"async\""));
  EXPECT_THAT(error({"servers.mode=ssp:2", "optimizer.name=lars"}),
              HasSubstr("optimizer.name \"lars\" takes norms"));
  EXPECT_THAT(error({"servers.use=0.75", "optimizer.name=lamb"}),
              HasSubstr("with servers.use 0.75 each server steps with the gradients"));
  EXPECT_THAT(error({"local_steps.steps=4", "servers.count=1", "gradient_clipping=1"}),
              HasSubstr("gradient_clipping is incompatible with local_steps"));
  // The optimizer of local steps is each worker's own.
  const auto local =
      train(3, {"servers.mode=async", "optimizer.name=lamb", "local_steps.steps=4"}, "local");
  EXPECT_EQ(local.status, 0) << local.output;
}

TEST_F(ServersCommand, GoOnAfterTheSamplesOfARunWithCommonSteps) {
  ASSERT_EQ(train(2, {"epochs=1", "checkpoint_every=1", "checkpoint_keep=0"}, "plain").status, 0);
  const auto dealt =
      train(2,
            {"servers.place=workers", "servers.mode=async", "checkpoint_every=4",
             "checkpoint_keep=0", "resume=" + (folder / "plain/checkpoints/step-000001").string()},
            "dealt");
  ASSERT_EQ(dealt.status, 0) << dealt.output;
  EXPECT_EQ(summary("dealt")["steps"], (114 + 7) / 8 + 2 * ((130 + 7) / 8));
  const auto again =
      train(2, {"servers.count=1", "servers.mode=async", "epochs=4", "resume=auto"}, "dealt");
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(summary("dealt")["steps"], (130 + 15) / 16);
}

TEST_F(ServersCommand, ReplayWithTheSameBits) {
  const std::string groups =
      R"(optimizer.groups=[{"match": ["*.bias"], "learning_rate": 0.02, "weight_decay": 0}])";
  for (Settings settings :
       {Settings{"servers.count=2", "servers.mode=async", "model.dropout=0.3", "evaluate_every=1",
                 "checkpoint_every=5"},
        Settings{"servers.place=workers", "servers.mode=ssp:1", "servers.pull_every=2",
                 "servers.rate=inverse", "precision=bf16", "accumulation_steps=2"},
        Settings{"servers.count=2", "servers.use=0.75", "model.name=convnet", "model.dropout=0.5",
                 groups, "parallel.bucket_cap_mb=0.001"}}) {
    const bool beside = settings.front() == "servers.place=workers";
    settings.push_back("servers.log=order.bin");
    const auto served = train(beside ? 4 : 6, settings, "run", kOneThread);
    ASSERT_EQ(served.status, 0) << served.output;
    const auto again = replay("run");
    EXPECT_EQ(again.status, 0) << again.output;
    EXPECT_THAT(again.output, HasSubstr("have the bits of the run"));
    EXPECT_EQ(model("replay"), model("run")) << settings[1];
    EXPECT_THAT(read_file(folder / "replay" / "replay.csv").value(),
                HasSubstr("worker,step,epoch,begin,samples,loss"));
  }
}

/// Kills a rank of a run in the folder "run" after its first checkpoint: the one with this RANK and
/// WORLD_SIZE, which count the ranks of its role.
Finished ServersCommand::train_and_kill(const std::string& rank, int ranks, int servers,
                                        const Settings& settings) {
  const std::string gradwire = own_program().parent_path() / "gradwire";
  // The shells write their processes' numbers.
  const std::string script =
      "echo $$ > $0/pid.$RANK.$WORLD_SIZE.part && mv $0/pid.$RANK.$WORLD_SIZE.part "
      "$0/pid.$RANK.$WORLD_SIZE && exec \"$@\"";
  Settings command{gradwire,      "run",
                   "-n",          std::to_string(ranks),
                   "--servers",   std::to_string(servers),
                   "--",          "sh",
                   "-c",          script,
                   folder.path(), gradwire,
                   "train",       folder / "mlp.json",
                   "--data",      folder.path(),
                   "--output",    folder / "run",
                   "--json",      folder / "run.json"};
  for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
  std::filesystem::remove_all(folder / "run");
  Subprocesses job;
  job.start(command, kOneThread);
  while (!std::filesystem::exists(folder / "run" / "checkpoints")) std::this_thread::yield();
  EXPECT_EQ(::kill(std::stoi(read_file(folder / ("pid." + rank)).value()), SIGKILL), 0);
  return job.wait().front();
}

TEST_F(ServersCommand, ReplayARunInWhichAWorkerDied) {
  const auto ended =
      train_and_kill("2.3", 4, 1,
                     {"servers.count=1", "servers.mode=async", "servers.log=order.bin",
                      "epochs=150", "model.dropout=0.3", "checkpoint_every=20", "batch_size=18"});
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("rank 2"));
  const auto again = replay("run");
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(model("replay"), model("run"));
}

/// Server 0 also deals the samples.
TEST_F(ServersCommand, GoOnWithTheMirrorOfALostServer) {
  for (const std::string lost : {"0.2", "1.2"}) {
    const auto ended =
        train_and_kill(lost, 5, 2,
                       {"servers.count=2", "servers.mode=async", "servers.mirror_every=4",
                        "epochs=150", "checkpoint_every=20", "batch_size=18"});
    ASSERT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("the others go on without it"));
    EXPECT_THAT(ended.output, HasSubstr("1 replaced by its mirror"));
    const auto staleness = summary("run")["staleness"];
    EXPECT_EQ(staleness["lost_servers"], 1);
    EXPECT_LE(staleness["lost_updates"], 4 * 4) << "of four tensors, each at most a unit";
  }
}

TEST_F(ServersCommand, ReplayNamesWhatDiffersAndRefusesOtherFiles) {
  const auto served =
      train(3, {"servers.count=1", "servers.mode=async", "servers.log=order.bin", "epochs=1"},
            "run", kOneThread);
  ASSERT_EQ(served.status, 0) << served.output;
  TemporaryFolder other;
  write_image_data(other.path(), 131, 21);
  const auto differs = replay("run", {"--data", other.path()});
  EXPECT_EQ(differs.status, 1);
  EXPECT_THAT(differs.output, AllOf(HasSubstr("differs from the run: the gradient of unit"),
                                    HasSubstr("(samples "), HasSubstr("test accuracy")));
  EXPECT_THAT(replay("run", {"-n", "2"}).output, HasSubstr("leave -n and --hosts out"));
  EXPECT_THAT(replay("run", {folder / "mlp.json"}).output, HasSubstr("leave CONFIG and --set out"));
  EXPECT_THAT(replay("run", {"--dry-run"}).output, HasSubstr("--replay has no --dry-run"));
  std::string file = read_file(folder / "run" / "order.bin").value();
  write_file(folder / "run" / "order.bin", file.substr(0, file.size() / 2));
  const auto damaged = replay("run");
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.output, HasSubstr("order.bin: it is damaged or incomplete"));
  EXPECT_THAT(replay("none").output, HasSubstr("order.bin"));
}

TEST(OrderOfUpdates, NeedsEqualThreadsOnAllRanks) {
  const auto errors = errors_on_threads(2, [](const ProcessGroup& group) {
    recipe::require_equal_threads(*group);
    torch::set_num_threads(1 + group->getRank());
    recipe::require_equal_threads(*group);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 0 computes with 1 threads and rank 1 with 2"));
}

TEST_F(ServersCommand, TakeLocalSteps) {
  const Settings local{"local_steps.steps=4", "local_steps.outer_learning_rate=0.7",
                       "local_steps.outer_momentum=0.9", "evaluate_every=1"};
  const auto with = [&](Settings settings) {
    settings.insert(settings.end(), local.begin(), local.end());
    return settings;
  };
  const auto plain = train(2, local, "plain");
  ASSERT_EQ(plain.status, 0) << plain.output;
  const auto sync = train(3, with({"servers.count=1"}), "sync");
  ASSERT_EQ(sync.status, 0) << sync.output;
  EXPECT_NEAR(summary("sync")["test_loss"], summary("plain")["test_loss"], 1e-4);
  for (const std::string mode : {"async", "ssp:1"}) {
    const auto served = train(5,
                              {"servers.count=1", "servers.mode=" + mode, "local_steps.steps=2",
                               "epochs=6", "evaluate_every=1"},
                              "loose");
    ASSERT_EQ(served.status, 0) << served.output;
    EXPECT_THAT(served.output, AllOf(HasSubstr("epoch 2/6  test accuracy"),
                                     Not(HasSubstr("acts like a momentum"))));
    EXPECT_LT(summary("loose")["test_loss"], 2) << mode;
    std::ifstream record(folder / "loose" / "run.json");
    EXPECT_EQ(nlohmann::json::parse(record)["strategy"],
              fmt::format("1 server, {} local steps x4", mode));
  }
  EXPECT_THAT(train(3, with({"servers.count=1", "local_steps.fragments=2"}), "refused").output,
              HasSubstr("local_steps.fragments is incompatible with servers"));
}

/// The worker's Adam and the servers' momentum go on, and the samples that were not applied.
TEST_F(ServersCommand, ResumeLocalStepsToTheSameBits) {
  const Settings local{"local_steps.steps=4", "local_steps.outer_learning_rate=0.7",
                       "local_steps.outer_momentum=0.5", "checkpoint_every=7", "checkpoint_keep=0"};
  for (const auto& [ranks, settings] :
       std::vector<std::pair<int, Settings>>{{2, {"servers.mode=async"}},
                                             {1, {"servers.place=workers", "servers.mode=ssp:1"}},
                                             {4, {"servers.count=2", "model.dropout=0.2"}}}) {
    Settings whole = local;
    whole.insert(whole.end(), settings.begin(), settings.end());
    const auto first = train(ranks, whole, "whole", kOneThread);
    ASSERT_EQ(first.status, 0) << first.output;
    const auto saved = checkpoints("whole");
    ASSERT_GE(saved.size(), 3);
    whole.push_back("resume=" + saved[1].string());
    const auto resumed = train(ranks, whole, "resumed", kOneThread);
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_TRUE(model("resumed") == model("whole")) << settings.front();
    EXPECT_EQ(summary("resumed")["staleness"]["version"], summary("whole")["staleness"]["version"]);
    std::filesystem::remove_all(folder / "whole");
  }
}

TEST_F(ServersCommand, ResumeLocalStepsWithOtherNumbersOfWorkersAndServers) {
  const auto progress = [this](const std::string& output) {
    return newest_run(output)["position"]["dealt"]["progress"];
  };
  const auto trained = [&](int ranks, const std::string& output, Settings settings) {
    settings.insert(settings.end(), {"local_steps.steps=2", "checkpoint_every=4"});
    const auto finished = train(ranks, settings, output);
    EXPECT_EQ(finished.status, 0) << finished.output;
    return summary(output)["test_loss"].get<double>();
  };
  const double before = trained(5, "part", {"servers.mode=async", "epochs=2"});
  EXPECT_EQ(progress("part"), (nlohmann::json{2 * 130}));
  const std::string from = "resume=" + (folder / "part" / "checkpoints").string();
  for (const auto& [ranks, settings] :
       std::vector<std::pair<int, Settings>>{{4, {"servers.mode=async", "servers.count=2"}},
                                             {4, {"servers.mode=ssp:1", "servers.place=workers"}},
                                             {3, {"servers.use=0.5", "servers.count=1"}}}) {
    Settings more = settings;
    more.insert(more.end(), {"epochs=8", from});
    EXPECT_LT(trained(ranks, "more", more), before) << settings.front();
    EXPECT_EQ(progress("more"), (nlohmann::json{8 * 130}));
    std::filesystem::remove_all(folder / "more");
  }
}

/// The last batch of an epoch has 2 samples, and the others 4 for a worker.
TEST_F(ServersCommand, WeighGradientsAndDifferencesBySamples) {
  for (const Settings& settings :
       {Settings{"servers.mode=async", "servers.weights=samples"},
        Settings{"servers.use=0.5", "servers.grace=0.01", "servers.weights=samples"},
        Settings{"servers.use=0.5", "servers.grace=0.01", "local_steps.steps=4",
                 "servers.weights=samples"},
        Settings{"servers.mode=ssp:1", "local_steps.steps=4", "servers.weights=samples"}}) {
    const auto finished = train(5, settings, "weighed");
    ASSERT_EQ(finished.status, 0) << finished.output;
    EXPECT_GT(summary("weighed")["test_accuracy"].get<double>(), 0.5) << settings[0];
  }
}

TEST_F(ServersCommand, ADryRunSaysWhoServes) {
  const std::string gradwire = own_program().parent_path() / "gradwire";
  const auto dry = [&](const Settings& settings) {
    Settings command{gradwire, "train", folder / "mlp.json", "--dry-run", "-n", "4"};
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    return run(command).output;
  };
  EXPECT_THAT(dry({"servers.count=2"}),
              AllOf(HasSubstr("2 ranks: data 2\n"),
                    HasSubstr("servers: 2 on ranks of their own, mode sync, each with 1/2 of"),
                    Not(HasSubstr("deals"))));
  EXPECT_THAT(dry({"servers.count=2", "optimizer.name=lamb"}),
              HasSubstr("optimizer.name \"lamb\" takes norms over all servers"));
  EXPECT_THAT(dry({"servers.place=workers", "servers.mode=async"}),
              AllOf(HasSubstr("servers: 4 beside the first workers, mode async"),
                    HasSubstr("server 0 deals batches of 4 samples"),
                    HasSubstr("servers.scale 0.25 (1/4)")));
  EXPECT_THAT(dry({"servers.count=2", "servers.units=[\"output\", \"hidden.weight\"]"}),
              AllOf(HasSubstr("asynchronous units: output, hidden.weight\n"),
                    HasSubstr("2 workers take 2 steps of the asynchronous units where mode sync")));
}

TEST_F(ServersCommand, RefuseWhatTheyCannotDo) {
  const auto error = [this](int ranks, const std::string& setting) {
    const auto finished = train(ranks, {"servers.count=1", setting}, "refused");
    EXPECT_NE(finished.status, 0) << setting;
    return finished.output;
  };
  EXPECT_THAT(error(3, "zero.stage=1"), HasSubstr("zero is incompatible with servers"));
  EXPECT_THAT(error(3, "mesh.pipeline=2"), HasSubstr("mesh"));
  EXPECT_THAT(error(3, "parallel.codec=auto"), HasSubstr("need a codec of single values"));
  EXPECT_THAT(error(3, "servers.pull_codec=int8"), HasSubstr("expected none or bf16"));
  EXPECT_THAT(error(3, "servers.log=order.bin"),
              HasSubstr("another run of this configuration has the same bits"));
  const auto logged = [this](const std::string& setting) {
    return train(3, {"servers.count=1", "servers.mode=async", "servers.log=order.bin", setting},
                 "refused")
        .output;
  };
  EXPECT_THAT(logged("local_steps.steps=4"),
              HasSubstr("local_steps is incompatible with servers.log"));
  EXPECT_THAT(logged("resume=auto"), HasSubstr("resume is incompatible with servers.log"));
  EXPECT_THAT(logged("parallel.codec=int8"),
              HasSubstr("parallel.codec is incompatible with servers.log"));
  EXPECT_THAT(error(3, "servers.weights=samples"), HasSubstr("or servers.use below 1"));
  EXPECT_THAT(error(3, "servers.grace=1"), HasSubstr("set servers.use"));
  EXPECT_THAT(error(3, "servers.mirror_every=4"),
              HasSubstr("servers.mirror_every is of the modes \"ssp\" and \"async\""));
  const auto mirrored = [this](const Settings& more) {
    Settings settings{"servers.mode=async", "servers.mirror_every=4"};
    settings.insert(settings.end(), more.begin(), more.end());
    return train(4, settings, "refused").output;
  };
  EXPECT_THAT(mirrored({"servers.count=1"}), HasSubstr("servers.mirror_every needs two servers"));
  for (const std::string& other : Settings{"servers.groups=2", "servers.pull_codec=bf16",
                                           "parallel.codec=int8", "servers.log=order.bin"}) {
    const std::string key = other.substr(0, other.find('='));
    EXPECT_THAT(mirrored({"servers.count=2", other}),
                HasSubstr(key + " is incompatible with servers.mirror_every"));
  }
  EXPECT_THAT(error(3, "servers.units=nothing"), HasSubstr("\"nothing\" names no parameter"));
  EXPECT_THAT(error(3, "servers.units=[]"), HasSubstr("servers.units"));
  EXPECT_THAT(
      train(3, {"servers.count=1", "servers.units=output", "servers.mode=async"}, "refused").output,
      HasSubstr("with servers.mode \"async\" and use 1 none is synchronous"));
  EXPECT_THAT(
      train(3, {"servers.count=1", "servers.units=output", "gradient_clipping=1"}, "refused")
          .output,
      HasSubstr("of which servers.units have none in common"));
  EXPECT_THAT(
      train(3, {"servers.count=1", "servers.units=output", "local_steps.steps=2"}, "refused")
          .output,
      HasSubstr("local_steps with servers.units"));
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
  config.local_steps = {.steps = 8, .outer_learning_rate = 0.7, .outer_momentum = 0.9};
  config.local_steps.enabled = true;
  EXPECT_THAT(recipe::advice_on_servers(config, 4),
              ElementsAre(HasSubstr("outer_learning_rate of 0.3 is usual, not 0.7")));
  config.local_steps.outer_learning_rate = 0.3;
  EXPECT_THAT(recipe::advice_on_servers(config, 4), IsEmpty());
  config.servers.mode = "sync";
  EXPECT_THAT(recipe::advice_on_servers(config, 9), IsEmpty());
}

}  // namespace
}  // namespace gradwire::test
