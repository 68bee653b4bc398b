#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/cli/plan/plan_arguments.h"
#include "gradwire/topology/topology_file.h"
#include "tests/cli/launched.h"

/// `gradwire plan`, as the real program.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

Outcome plan(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"plan"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_gradwire(command);
}

nlohmann::json planned(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "-"});
  const Outcome outcome = plan(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

/// The published ladder of the case study.
TEST(Plan, ClimbsTheLadder) {
  std::vector<std::string> rung{"--model",   "resnet50", "--nodes",   "4",   "--network", "10gbe",
                                "--step-ms", "234",      "--comm-ms", "106", "--overlap", "none"};
  const auto eta = [&] { return std::round(1000 * planned(rung)["eta"].get<double>()) / 10; };
  EXPECT_DOUBLE_EQ(eta(), 68.8);
  rung.insert(rung.end(), {"--codec", "bf16"});
  EXPECT_DOUBLE_EQ(eta(), 81.5);
  rung.insert(rung.end(), {"--accumulate", "2"});
  EXPECT_DOUBLE_EQ(eta(), 89.8);
  EXPECT_THAT(plan(rung).out,
              HasSubstr("second NIC: 491.4 -> 517 samples/s, efficiency 89.8 -> 94.5 %"));
  rung.insert(rung.end(), {"--nics", "2"});
  EXPECT_DOUBLE_EQ(eta(), 94.5);
}

TEST(Plan, PlacesAPipelineOverHostsThatDiffer) {
  const std::vector<std::string> hosts{
      "place",       "--model", "gpt2",    "--batch",         "8", "--speeds", "1,0.5,1",
      "--precision", "fp32",    "--rates", "10gbe,10gbe,1gbe"};
  const Outcome shown = plan(hosts);
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("gradwire train pipeline.json --hosts host"));
  const nlohmann::json placed = planned(hosts)["over_hosts"];
  EXPECT_EQ(placed["hosts"].size() + placed["unused"].size(), 3u);
  EXPECT_EQ(placed["config"]["pipeline"]["cut"], placed["cut"]);
  EXPECT_EQ(placed["memory_bytes"].size(), placed["hosts"].size());
  EXPECT_LT(placed["step_ms"], placed["even_step_ms"]);
  const Outcome wrong = plan({"place", "--nodes", "4", "--speeds", "1,0.5"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--speeds has 2 values for 4 hosts"));
}

TEST(Plan, ExplainsAndKeepsItsNumbers) {
  const TemporaryFolder folder;
  const std::string json = folder / "plan.json";
  const Outcome outcome = plan({"--explain", "--json", json});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Bottleneck: "));
  EXPECT_THAT(outcome.out, HasSubstr("Where the numbers come from"));
  EXPECT_TRUE(nlohmann::json::parse(content_of(json)).contains("eta"));
}

TEST(Plan, EstimatesZerosMemory) {
  const Outcome outcome = plan({"--params", "7.5B", "--nodes", "64"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("0: 120 GB, 1: 31.4 GB, 2: 16.6 GB, 3: 1.9 GB"));
  // 120 GB / 5 equal the device's 24 GB, without the buckets.
  EXPECT_THAT(outcome.out, HasSubstr("ZeRO stage 3 on 6 or more nodes, ZeRO stage 2 on 12 or"));
  EXPECT_EQ(plan({"--params", "7.5B"}).out, outcome.out);
}

/// The file of `gradwire probe` for four hosts with such links.
std::string topology_file(const TemporaryFolder& folder, double bytes_per_second,
                          const std::vector<topology::MeasuredChoice>& choices = {}) {
  topology::Cluster cluster{.choices = choices};
  for (const char* name : {"a", "b", "c", "d"}) {
    cluster.hosts.push_back({.name = name,
                             .rails = {{.interface = "eth0",
                                        .bytes_per_second = bytes_per_second,
                                        .latency = std::chrono::microseconds(30)}}});
  }
  const std::string path = fmt::format("{}/{}-{}.json", folder.path().string(), bytes_per_second,
                                       choices.empty() ? 0 : choices.front().segments);
  topology::write_cluster(cluster, path);
  return path;
}

TEST(Plan, UsesMeasuredLinks) {
  const TemporaryFolder folder;
  const auto answer_on = [&](double rate, const std::string& key) {
    return planned({"--nodes", "4", "--overlap", "none", "--network", topology_file(folder, rate)})
        .at(key)
        .get<double>();
  };
  EXPECT_GT(answer_on(6.25e7, "step_ms"), 1.2 * answer_on(1.25e8, "step_ms"));
  EXPECT_LT(answer_on(6.25e7, "eta"), answer_on(1.25e8, "eta"));
}

/// The reference of docs/engines.md.
TEST(Plan, PricesAnEngineByItsBusBandwidth) {
  const std::vector<std::string> given{"--nodes",   "4",    "--model",         "bert_large",
                                       "--engine",  "nccl", "--bus-bandwidth", "42GB/s",
                                       "--latency", "5us"};
  const auto json = planned(given);
  EXPECT_EQ(json["engine"], "nccl");
  EXPECT_EQ(json["algorithm"], "nccl");
  EXPECT_EQ(json["bus_bandwidth"], 42e9);
  const double bytes = 4 * json["parameters"].get<double>();
  EXPECT_NEAR(json["phases_ms"]["bandwidth"].get<double>(), 1.5e3 * bytes / 42e9, 1e-9);
  EXPECT_NEAR(json["phases_ms"]["latency"].get<double>(), 4 * 5e-3, 1e-9);
}

TEST(Plan, TakesTheBusBandwidthOfABench) {
  const TemporaryFolder folder;
  const std::string file = folder / "bench.json";
  const Outcome bench = run_gradwire(
      {"bench", "all_reduce", "-n", "2", "--sizes", "4,2M", "--iterations", "3", "--json", file});
  ASSERT_EQ(bench.status, 0) << bench.err;
  const auto rows = nlohmann::json::parse(content_of(file))["rows"];
  const auto json = planned({"--nodes", "2", "--bus-bandwidth", file});
  EXPECT_NEAR(json["bus_bandwidth"].get<double>(), rows[1]["busbw_gbps"].get<double>() * 1.25e8, 1);
  EXPECT_GT(json["phases_ms"]["latency"].get<double>(), 0);
  EXPECT_THAT(plan({"--engine", "mpi", "--bus-bandwidth", file}).err, HasSubstr("engines: own"));
}

TEST(PlanSimulate, UsesMeasuredLinks) {
  const TemporaryFolder folder;
  const auto simulated = [&](double rate, std::vector<std::string> what) {
    what.insert(what.begin(), {"simulate", "--topology", topology_file(folder, rate)});
    return planned(what);
  };
  const std::vector<std::string> operation{"--collective", "all_reduce", "--bytes", "64M"};
  const auto fast = simulated(1.25e8, operation);
  EXPECT_EQ(fast["ranks"], 4);
  // A ring of four takes 1.5 times the data's time on the link.
  EXPECT_NEAR(fast["time_us"].get<double>(), 1.5e6 * (64 << 20) / 1.25e8, 2e4);
  EXPECT_NEAR(simulated(6.25e7, operation)["time_us"].get<double>(),
              2 * fast["time_us"].get<double>(), 2e4);
  const std::vector<std::string> step{"--profile", "resnet50", "--compute-ms", "100"};
  EXPECT_GT(simulated(6.25e7, step)["step_ms"], simulated(1.25e8, step)["step_ms"]);
}

TEST(PlanSimulate, ServersWithSlowWorkers) {
  const auto simulated = [](std::vector<std::string> how) {
    how.insert(how.begin(), {"simulate", "--profile", "uniform:1x200000", "--compute-ms", "50",
                             "--nodes", "4", "--network", "100gbe", "--servers", "1"});
    return planned(how);
  };
  const auto async = simulated({"--mode", "async", "--spread", "none", "--slow", "3:4"});
  EXPECT_NEAR(async["updates_per_second"].get<double>(), 65, 0.5);
  EXPECT_EQ(async["advice"], "");
  const auto bounded = simulated({"--mode", "ssp:3", "--spread", "none", "--slow", "3:4"});
  EXPECT_NEAR(bounded["updates_per_second"].get<double>(), 20, 0.5);
  EXPECT_THAT(bounded["advice"].get<std::string>(), HasSubstr("worker 3 computes 4.0 times"));
  const auto late = simulated({"--spread", "none", "--slow", "2:5:0.25", "--rounds", "2000"});
  EXPECT_NEAR(late["step_ms"].get<double>(), 100, 8);
  const auto step = simulated({"--spread", "exponential", "--rounds", "2000"})["step_ms"];
  EXPECT_NEAR(step.get<double>(), 50 * (1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4), 5);
}

TEST(PlanSimulate, GroupsAndCodecsOfServers) {
  const auto simulated = [](std::vector<std::string> how) {
    how.insert(how.begin(), {"simulate", "--profile", "uniform:1x100000000", "--compute-ms", "50",
                             "--nodes", "4", "--network", "1gbe", "--servers", "1", "--mode",
                             "async", "--spread", "none", "--rounds", "20"});
    return planned(how);
  };
  const auto apart = simulated({}), groups = simulated({"--groups", "2"});
  EXPECT_EQ(groups["workers"], 4);
  EXPECT_EQ(groups["groups"], 2);
  EXPECT_NEAR(apart["staleness"].get<double>(), 3, 0.05);
  EXPECT_NEAR(groups["staleness"].get<double>(), 1, 0.05);
  // The server's port decides: it receives a gradient, and sends parameters, for each update.
  const double updates = apart["updates_per_second"];
  EXPECT_NEAR(simulated({"--codec", "int8"})["updates_per_second"].get<double>(), updates,
              0.05 * updates);
  const auto both = simulated({"--codec", "int8", "--pull-codec", "bf16"});
  EXPECT_GT(both["updates_per_second"].get<double>(), 1.8 * updates);
  EXPECT_GT(simulated({"--pull-every", "4"})["staleness"].get<double>(), 5);
}

TEST(PlanSimulate, UsesTheMeasurementsOfTune) {
  const TemporaryFolder folder;
  const auto simulated = [&](const std::string& algorithm, int segments) {
    const std::string file = topology_file(
        folder, 1.25e8,
        {{"all_reduce", 4, 1 << 20, algorithm, std::chrono::milliseconds(50), segments}});
    return planned({"simulate", "--topology", file, "--collective", "all_reduce", "--bytes", "1M"});
  };
  const auto tree = simulated("tree", 32);
  EXPECT_EQ(tree["algorithm"], "tree");
  // The larger a part, the later the next rank can forward it.
  EXPECT_GT(simulated("tree", 8)["time_us"].get<double>(), 1.02 * tree["time_us"].get<double>());
}

TEST(Plan, RefusesInvalidInput) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--nodes", "0"}, "expected 1 to"},
      {{"simulate", "--clients", "100", "--asked", "0"}, "--asked"},
      {{"simulate", "--clients", "100", "--window-s", "0"}, "--window-s"},
      {{"simulate", "--clients", "100", "--spread", "exponential"}, "requires --servers"},
      {{"simulate", "--servers", "1", "--spread", "exponentially"}, "--spread"},
      {{"simulate", "--servers", "1", "--nodes", "2", "--compute-ms", "9", "--slow", "2:4"},
       "there are 2 workers"},
      {{"simulate", "--servers", "1", "--compute-ms", "9", "--slow", "1:4:2"}, "such as 3:5:0.1"},
      {{"simulate", "--slow", "1:2"}, "--slow requires --servers"},
      {{"simulate", "--servers", "1", "--overlap", "none"}, "--overlap is not modelled"},
      {{"simulate", "--servers", "1", "--accumulate", "2"}, "--accumulate is not modelled"},
      {{"simulate", "--servers", "1", "--compute-ms", "9", "--codec", "auto"}, "codec \"auto\""},
      {{"simulate", "--servers", "1", "--compute-ms", "9", "--pull-every", "2"}, "--mode ssp or"},
      {{"simulate", "--servers", "1", "--compute-ms", "9", "--groups", "2"}, "sync"},
      {{"--servers", "some"}, "--servers"},
      {{"--nodes", "2", "--servers", "1", "--mode", "async"}, "requires --servers auto"},
      {{"--nodes", "2", "--servers", "3", "--place", "workers"}, "at most one on each"},
      {{"--nodes", "4", "--servers", "auto", "--search"}, "leave out"},
      {{"--nodes", "1", "--servers", "auto"}, "at least 2 nodes"},
      {{"simulate", "--groups", "2"}, "--groups requires --servers"},
      {{"simulate", "--mode", "async"}, "--mode requires --servers"},
      {{"simulate", "--update-ms", "-1"}, "--update-ms"},
      {{"simulate", "--failures-per-day", "3", "--restart-s", "-1"}, "--restart-s"},
      {{"--model", "resnet5O"}, "did you mean \"resnet50\""},
      {{"--network", "10gbee"}, "did you mean \"10gbe\""},
      {{"--device", "a10O"}, "did you mean \"a10\""},
      {{"--overlap", "ful"}, "did you mean \"full\""},
      {{"--zero-stage", "4"}, "expected 0 to 3"},
      {{"--model", "llama2_70b", "--nodes", "2"}, "or more nodes"},
      {{"--model", "llama2_70b", "--memory", "1G"}, "More nodes do not make it fit"},
      {{"--sweep", "nodes=9..2"}, "nodes=2..4096"},
      {{"--sweep", "nodes=2..4", "--plot", "eta.png"}, "ends with .svg or .html"},
      {{"--nodes", "1", "--comm-ms", "3"}, "no communication"},
      {{"--model", "resnet50", "--tensor", "2"}, "attention heads"},
      {{"--nodes", "two"}, "--nodes"},
      {{"--engine", "nccl"}, "--engine nccl: its bandwidth is neither given nor measured"},
      {{"--engine", "ucx"}, "--engine"},
      {{"--bus-bandwidth", "42"}, "expected a rate such as 42GB/s"},
      {{"--bus-bandwidth", "9GB/s", "--network", "1gbe"}, "--network excludes"},
      {{"--bus-bandwidth", "9GB/s", "--nics", "2"}, "--nics excludes"},
      {{"--bus-bandwidth", "9GB/s", "--algorithm", "ring"}, "leave out --algorithm"},
      {{"--bus-bandwidth", "9GB/s", "--comm-ms", "9"}, "leave out --comm-ms"},
      {{"--engine", "mpi", "--bus-bandwidth", "9GB/s", "--servers", "1"}, "gradwire's own engine"},
      {{"--engine", "gloo", "--bus-bandwidth", "9GB/s", "--codec", "int8"}, "own engine or mpi"},
      {{"--engine", "nccl", "--bus-bandwidth", "9GB/s", "--search"}, "own engine or mpi"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = plan(arguments);
    EXPECT_EQ(outcome.status, 2) << expected;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

TEST(Plan, SweepsAndDraws) {
  const TemporaryFolder folder;
  const std::string plot = folder / "sweep.svg";
  const Outcome outcome = plan({"--sweep", "nodes=2..4096", "--plot", plot});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("   4096"));
  EXPECT_THAT(content_of(plot), HasSubstr("<polyline"));
}

TEST(Plan, SweepsOtherNetworksWithTheCardsAndTheSwitchesAskedFor) {
  std::vector<std::string> arguments{"--sweep",    "nodes=16..16", "--network",    "10gbe",
                                     "--networks", "1gbe",         "--algorithms", "direct"};
  const auto travels = [&](const std::string& option, const std::string& value) {
    auto with = arguments;
    with.insert(with.end(), {option, value});
    return planned(with)["lines"][0]["t_c_ms"].back().get<double>();
  };
  EXPECT_LT(travels("--nics", "2"), 0.6 * travels("--nics", "1"));
  EXPECT_GT(travels("--oversubscription", "4"), 1.9 * travels("--oversubscription", "1"));
}

TEST(Plan, SearchPrintsAConfiguration) {
  const auto config = planned({"--search", "--model", "gpt2_xl", "--nodes", "8", "--batch", "8"});
  EXPECT_EQ(config["batch_size"], 64);
  EXPECT_GE(config["zero"]["stage"], 1);  // 25 GB of states exceed a device of 24.
}

TEST(Plan, DoesNotAskWithoutATerminal) {
  const Outcome outcome = plan({});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--model"));
}

TEST(Plan, AsksThreeQuestions) {
  const std::vector<std::string> answers{"resnet5O", "gpt2", "0", "", "10gbee", "25gbe"};
  std::size_t next = 0;
  std::vector<std::string> told;
  const auto given = cli::ask_for_plan(
      [&](const std::string&) -> std::optional<std::string> { return answers.at(next++); },
      [&](const std::string& what) { told.push_back(what); });
  ASSERT_TRUE(given);
  EXPECT_EQ(given->model, "gpt2");
  EXPECT_EQ(given->strategy.nodes, 4);
  EXPECT_EQ(given->network, "25gbe");
  ASSERT_EQ(told.size(), 3u);
  EXPECT_THAT(told[0], HasSubstr("resnet50"));
  EXPECT_THAT(told[1], HasSubstr("1 or more"));
  EXPECT_FALSE(
      cli::ask_for_plan([](const std::string&) { return std::nullopt; }, [](const auto&) {}));
}

}  // namespace
}  // namespace gradwire::test
