#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/cli/bench/step_compare.h"
#include "gradwire/cli/bench/step_options.h"
#include "gradwire/cli/bench/step_report.h"
#include "gradwire/workload/profiles.h"
#include "tests/cli/launched.h"

/// `gradwire bench step`, as the real program, and its figures.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome step(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"bench", "step"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_gradwire(command);
}

constexpr const char* kSmall = R"({"name": "small", "compute_ms": 6, "layers": [
  {"name": "a", "forward": 1, "backward": 2, "parameters": [{"name": "a.w", "shape": [256, 128]}]},
  {"name": "b", "forward": 1, "backward": 2, "parameters": [{"name": "b.w", "shape": [128, 256]},
                                                            {"name": "b.b", "shape": [128]}]}]})";

TEST(BenchStep, MeasuresEveryCombination) {
  const TemporaryFolder folder;
  const std::string profile = folder.write("small.json", kSmall);
  const std::string plot = folder / "plot.svg";
  const Outcome outcome = step({"-n", "2", "--profile", profile, "--codec", "none,int8",
                                "--accumulate", "1,2", "--overlap", "none,full", "--steps", "3",
                                "--json", "-", "--limit", "1Gb/s", "--plot", plot});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 8u);
  for (const auto& row : rows) {
    const double passes = row["accumulate"];
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["steps"], 3);
    EXPECT_GE(row["single_ms"], 5.99 * passes) << row;
    EXPECT_GE(row["step_ms"], 5.99 * passes) << row;
    EXPECT_GE(row["exposed_ms"], 0);
    EXPECT_GT(row["eta"], 0);
    EXPECT_LE(row["eta"], 1);
    // With two ranks, each sends half of the data to the other, twice.
    const double all = row["codec"] == "none" ? 4 * (2 * 32768 + 128) : 2 * 32768 + 4 * 128;
    EXPECT_NEAR(row["bytes_per_step"].get<double>() / all, 1, 0.1) << row;
  }
  EXPECT_THAT(content_of(plot), HasSubstr("<svg"));
}

TEST(BenchStep, LocalStepsSendLess) {
  const TemporaryFolder folder;
  const Outcome outcome =
      step({"-n", "2", "--profile", folder.write("small.json", kSmall), "--local-steps", "1,4",
            "--fragments", "2", "--overlap-steps", "1", "--steps", "4", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  EXPECT_EQ(rows[0]["fragments"], 1) << "there is nothing to cut up";
  EXPECT_EQ(rows[1]["fragments"], 2);
  EXPECT_EQ(rows[1]["overlap_steps"], 1);
  EXPECT_NEAR(rows[1]["bytes_per_step"].get<double>() / rows[0]["bytes_per_step"].get<double>(),
              0.25, 0.01);
}

TEST(BenchStep, RefusesTheLocalStepsThatTheTrainerRefuses) {
  const auto refused = [](std::vector<std::string> arguments,
                          const step::LocalStepsConfig& config) {
    std::string says = "no error";
    try {
      step::check_local_steps(config);
    } catch (const Exception& error) {
      says = error.what();
    }
    arguments.insert(arguments.end(), {"-n", "2", "--compute-ms", "5"});
    const Outcome outcome = step(arguments);
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.err, HasSubstr(says));
  };
  refused({"--local-steps", "8", "--fragments", "2", "--overlap-steps", "4"},
          {.steps = 8, .fragments = 2, .overlap_steps = 4});
  refused({"--local-steps", "4", "--fragments", "5"}, {.steps = 4, .fragments = 5});
  refused({"--overlap-steps", "1"}, {.steps = 1, .overlap_steps = 1});
  refused({"--local-steps", "4", "--fragments", "2", "--codec", "auto"},
          {.steps = 4, .fragments = 2, .codec = "auto"});
}

TEST(BenchStep, AutoDecidesAboutTheAveragesOfLocalSteps) {
  const TemporaryFolder folder;
  const Outcome outcome =
      step({"-n", "2", "--profile", folder.write("small.json", kSmall), "--codec", "auto",
            "--local-steps", "2", "--steps", "2", "--compute-ms", "0.5", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["rows"].size(), 1u);
}

TEST(BenchStep, TheLadderClimbsToLocalSteps) {
  const TemporaryFolder folder;
  const Outcome outcome = step({"-n", "2", "--profile", folder.write("small.json", kSmall),
                                "--ladder", "--steps", "1", "--warmup", "1", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  std::vector<std::string> rungs;
  for (const auto& row : rows) {
    rungs.push_back(fmt::format("{} {} x{} /{}", row["overlap"].get<std::string>(),
                                row["codec"].get<std::string>(), row["accumulate"].get<int>(),
                                row["local_steps"].get<int>()));
  }
  EXPECT_THAT(rungs, ElementsAre("none none x1 /1", "backward none x1 /1", "full none x1 /1",
                                 "full bf16 x1 /1", "full bf16 x2 /1", "full int8 x1 /1",
                                 "full int4 x1 /1", "full one_bit x1 /1", "full power_sgd:1 x1 /1",
                                 "full top_k:0.01 x1 /1", "full int8 x1 /16"));
}

TEST(BenchStep, TheLadderTakesNoListsBesideIt) {
  for (const char* list : {"--codec", "--accumulate", "--local-steps", "--fragments",
                           "--overlap-steps", "--overlap", "--zero-stage"}) {
    const std::string usual = std::string(list) == "--codec" ? "none" : "1";
    const Outcome outcome = step({"-n", "2", "--compute-ms", "5", "--ladder", list, usual});
    EXPECT_EQ(outcome.status, 2) << list;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("--ladder"), HasSubstr(list)));
  }
}

TEST(BenchStep, TrialsOfAutoDoNotCount) {
  const TemporaryFolder folder;
  const Outcome outcome = step({"-n", "2", "--profile", folder.write("small.json", kSmall),
                                "--codec", "none,int8,auto", "--steps", "4", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  const auto bytes = [&](std::size_t row) { return rows[row]["bytes_per_step"].get<double>(); };
  ASSERT_GT(bytes(0), 2 * bytes(1));
  EXPECT_THAT(bytes(2), AnyOf(DoubleNear(bytes(0), 1000), DoubleNear(bytes(1), 1000))) << rows;
}

TEST(BenchStep, ShardsWhatTheStageSays) {
  const Outcome outcome = step({"-n", "2", "--profile", "uniform:8x64K", "--compute-ms", "8",
                                "--zero-stage", "0,1,2,3", "--steps", "3", "--json", "-",
                                // Each layer in a separate bucket.
                                "--bucket", "1", "--first-bucket", "1", "--last-bucket", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  const double all = 8 << 16;
  for (int stage = 0; stage < 4; ++stage) {
    const auto& row = rows[static_cast<std::size_t>(stage)];
    EXPECT_EQ(row["zero_stage"], stage);
    EXPECT_EQ(row["all_reduce_bytes"], all);  // Two ranks: half of it, twice.
    EXPECT_NEAR(row["bytes_per_step"].get<double>() / all, stage == 3 ? 1.5 : 1, 0.1) << row;
    EXPECT_GE(row["step_ms"], 7.99) << row;
  }
  for (const int stage : {0, 1, 2}) EXPECT_EQ(rows[std::size_t(stage)]["parameter_bytes"], all);
  EXPECT_LT(rows[3]["parameter_bytes"], all);
  EXPECT_EQ(rows[0]["gradient_bytes"], all);
  EXPECT_EQ(rows[1]["gradient_bytes"], 1.5 * all);  // All of them, and the part of the mean.
}

TEST(BenchStep, ACodecMakesGradientsOfShardsSmaller) {
  const Outcome outcome =
      step({"-n", "2", "--profile", "uniform:4x256K", "--compute-ms", "8", "--zero-stage", "1,2,3",
            "--codec", "none,int8", "--steps", "3", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    const auto saved = rows[stage]["bytes_per_step"].get<double>() -
                       rows[stage + 3]["bytes_per_step"].get<double>();
    // Half of the gradients leaves each rank: four bytes per value, or one and its block's scale.
    EXPECT_NEAR(saved / (4 << 18), 0.5 * 0.74, 0.03) << rows;
  }
}

TEST(BenchStep, MeasuresServersInEveryMode) {
  const TemporaryFolder folder;
  const std::string profile = folder.write("small.json", kSmall);
  const Outcome outcome =
      step({"-n", "4", "--profile", profile, "--servers", "0,2", "--mode", "sync,ssp:1,async",
            "--steps", "20", "--warmup", "2", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["ranks"], 4);
  EXPECT_EQ(rows[0]["servers"], 0);
  EXPECT_FALSE(rows[0].contains("mode"));
  const std::vector<std::string> modes{"sync", "ssp:1", "async"};
  const double gradients = 4 * (2 * 32768 + 128);
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const auto& row = rows[i + 1];
    EXPECT_EQ(row["mode"], modes[i]);
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["servers"], 2);
    EXPECT_EQ(row["late"], 0);
    EXPECT_GT(row["updates_per_s"], 0);
    EXPECT_GE(row["step_ms"], 5.9) << row;
    EXPECT_NEAR(row["bytes_per_step"].get<double>() / gradients, 1, 0.1) << row;
  }
  EXPECT_EQ(rows[1]["staleness_max"], 0);
  // The updates since the last pull of a worker that is slow at the end are not counted.
  EXPECT_NEAR(rows[3]["staleness_mean"].get<double>(), 1, 0.3);
}

TEST(BenchStep, ServersDropWhatIsLateAndASlowWorkerHoldsNobody) {
  const TemporaryFolder folder;
  const std::string profile = folder.write("small.json", kSmall);
  const auto measured = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"-n",     "4",       "--profile", profile,   "--servers",
                                       "4",      "--place", "workers",   "--steps", "20",
                                       "--slow", "3:10",    "--json",    "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = step(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["rows"][0];
  };
  const auto all = measured({}), first = measured({"--use", "0.75"});
  EXPECT_GE(all["step_ms"], 55) << "all wait for the slow worker";
  EXPECT_LT(first["step_ms"], 40) << first;
  EXPECT_GT(first["late"], 0);
  EXPECT_GT(first["updates_per_s"].get<double>(), 1.5 * all["updates_per_s"].get<double>());
}

TEST(BenchStep, AdvisesAgainstABoundThatASlowWorkerHolds) {
  const auto said = [](const std::string& mode) {
    const Outcome outcome =
        step({"-n", "3", "--profile", "uniform:1x4096", "--compute-ms", "2", "--servers", "1",
              "--mode", mode, "--slow", "1:3", "--steps", "2"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(said("ssp:1"), HasSubstr("# advice: worker 1 computes 3.0 times as long"));
  EXPECT_THAT(said("async"), Not(HasSubstr("advice")));
}

TEST(BenchStep, RefusesServersThatCannotBe) {
  const auto error = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"-n", "2", "--compute-ms", "1", "--steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return step(arguments).err;
  };
  EXPECT_THAT(error({"--servers", "2"}), HasSubstr("at most 1 can serve, as others must work"));
  EXPECT_THAT(error({"--servers", "1", "--codec", "int8"}), HasSubstr("requires --codec none"));
  EXPECT_THAT(error({"--servers", "1", "--mode", "bsp"}), HasSubstr("unknown mode"));
  EXPECT_THAT(error({"--servers", "1", "--slow", "1"}), HasSubstr("expected RANK:FACTOR"));
  EXPECT_THAT(error({"--servers", "1", "--slow", "1:2"}),
              HasSubstr("--slow 1: there are 1 workers beside --servers 1"));
  for (const std::vector<std::string>& alone : {std::vector<std::string>{"--slow", "1:2"},
                                                {"--use", "0.5"},
                                                {"--mode", "async"},
                                                {"--spread", "exponential"},
                                                {"--place", "workers"}}) {
    EXPECT_THAT(error(alone), HasSubstr(alone.front() + " requires --servers"));
  }
  EXPECT_THAT(error({"--servers", "2", "--place", "workers", "--use", "0.9"}),
              HasSubstr("it takes at least 10 workers"));
}

TEST(BenchStep, OneRankAloneShardsNothing) {
  const Outcome outcome = step(
      {"--profile", "uniform:3x4K", "--compute-ms", "3", "--zero-stage", "0,3", "--steps", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("x DDP"));
}

TEST(BenchStep, OneRankAloneHasNothingToWaitFor) {
  const TemporaryFolder folder;
  const Outcome outcome = step({"--profile", folder.write("small.json", kSmall), "--steps", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("small on 1 ranks"));
}

TEST(BenchStep, WritesATrace) {
  const TemporaryFolder folder;
  const std::string trace = folder / "trace.json";
  const Outcome outcome = step({"-n", "2", "--profile", folder.write("small.json", kSmall),
                                "--steps", "2", "--trace", trace});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(content_of(trace), HasSubstr("traceEvents"));
}

TEST(BenchStep, RefusesWhatIsNotThere) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& says) {
    arguments.insert(arguments.end(), {"-n", "2"});
    const Outcome outcome = step(arguments);
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.err, HasSubstr(says));
  };
  refused({"--compute-ms", "5", "--codec", "int9"}, "int8");
  refused({"--compute-ms", "5", "--profile", "resnet5"}, "did you mean \"resnet50\"?");
  refused({"--compute-ms", "5", "--overlap", "none", "--local-steps", "4"}, "--overlap-steps");
  refused({"--compute-ms", "5", "--overlap", "fully"}, "did you mean \"full\"?");
  refused({"--compute-ms", "5", "--compare", "dpd"}, "did you mean \"ddp\"?");
  refused({"--compute-ms", "5", "--codec", "none,bf16", "--trace", "f"}, "--trace");
  refused({"--compute-ms", "5", "--bucket", "many"}, "--bucket");
  refused({"--compute-ms", "5", "--zero-stage", "4"}, "--zero-stage");
  refused({"--compute-ms", "5", "--zero-stage", "1", "--codec", "power_sgd:1"}, "single values");
  refused({"--compute-ms", "5", "--zero-stage", "1", "--accumulate", "2"}, "--accumulate 1");
  refused({"--compute-ms", "5", "--profile", "uniform:0x5"}, "uniform:LAYERSxBYTES");
  refused({}, "--compute-ms");
}

cli::StepRow row_of(const std::string& system, double step_ms) {
  const auto ms = [](double value) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(value));
  };
  cli::StepRow row{.system = system, .what = {.codec = "bf16"}};
  row.figures = {.ranks = 4,
                 .steps = 5,
                 .single = ms(100),
                 .step = ms(step_ms),
                 .exposed = ms(25),
                 .bytes_per_step = 1e6,
                 .cpu_seconds = 0.01,
                 .memory = {.parameters = 4'000, .gradients = 2'000},
                 .elements = 1'000};
  return row;
}

TEST(StepReport, RowsSurviveJson) {
  const std::vector<cli::StepRow> rows{row_of("gradwire", 125)};
  const auto read =
      cli::parse_step_rows("text\n" + cli::step_json(rows, 0), "gradwire", {&rows[0].what, 1});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->front().figures.step, rows[0].figures.step);
  EXPECT_EQ(read->front().figures.exposed, rows[0].figures.exposed);
  EXPECT_DOUBLE_EQ(read->front().figures.efficiency(), 0.8);
  EXPECT_DOUBLE_EQ(read->front().figures.all_reduce_bytes(), 6'000);
  EXPECT_EQ(read->front().figures.memory.gradients, 2'000u);
  EXPECT_FALSE(cli::parse_step_rows("{}", "ddp", {&rows[0].what, 1}));
}

TEST(StepReport, ShowsBytesOfZeroIfRequested) {
  cli::StepRow row = row_of("gradwire", 125);
  row.what.zero_stage = 3;
  row.figures.bytes_per_step = 9'000;
  EXPECT_THAT((cli::StepTable{.zero = true}.line(row)), HasSubstr("1.50 of 1.5"));
  EXPECT_THAT(cli::StepTable{}.line(row), Not(HasSubstr("1.50 of 1.5")));
  EXPECT_THAT((cli::StepTable{.zero = true}.head("m", 4)), HasSubstr("x DDP"));
  EXPECT_THAT(cli::label_of(row.what), HasSubstr("ZeRO 3"));
}

TEST(StepReport, TakesTheMiddleRound) {
  const std::vector<cli::StepRow> rounds{row_of("gradwire", 130), row_of("gradwire", 110),
                                         row_of("gradwire", 120)};
  const cli::StepRow middle = cli::median_round(rounds);
  EXPECT_EQ(middle.figures.step, rounds[2].figures.step);
  EXPECT_EQ(middle.rounds, 3);
}

TEST(StepReport, TheBoundIsWhatTheLinkCarries) {
  cli::StepRow row = row_of("gradwire", 125);
  EXPECT_DOUBLE_EQ(emulation::efficiency_bound(row.what, row.figures, 5e6), 0.5);
  EXPECT_DOUBLE_EQ(emulation::efficiency_bound(row.what, row.figures, 5e7), 1);
  row.what.accumulate = 2;  // 50 ms a pass, 200 to send: 50 + 200.
  EXPECT_DOUBLE_EQ(emulation::efficiency_bound(row.what, row.figures, 5e6), 0.4);
  row.what = {.local_steps = 4};  // 100 ms a step, 200 to send, of which 50 are hidden.
  EXPECT_DOUBLE_EQ(emulation::efficiency_bound(row.what, row.figures, 5e6), 100.0 / 300);
  row.what.fragments = 2;
  row.what.overlap_steps = 1;
  EXPECT_DOUBLE_EQ(emulation::efficiency_bound(row.what, row.figures, 5e6), 100.0 / 250);
  EXPECT_THAT(cli::step_svg(std::vector{row}, "t", 5e6), HasSubstr("bound"));
  EXPECT_THAT(cli::step_svg(std::vector{row}, "t", 0), Not(HasSubstr("bound")));
}

TEST(StepCompare, DdpHasSomeOfTheCases) {
  EXPECT_EQ(cli::ddp_case({.codec = "bf16"})->overlap, step::Overlap::backward);
  EXPECT_EQ(cli::ddp_case({.codec = "none", .overlap = step::Overlap::none})->overlap,
            step::Overlap::none);
  EXPECT_EQ(cli::ddp_case({.codec = "power_sgd:1", .accumulate = 2})->accumulate, 2);
  EXPECT_FALSE(cli::ddp_case({.codec = "int8"}));
  EXPECT_FALSE(cli::ddp_case({.local_steps = 8}));
  EXPECT_FALSE(cli::ddp_case({.zero_stage = 1}));
}

TEST(StepCompare, PassesOptionsOn) {
  cli::StepOptions options;
  options.compute_ms = 50;
  options.launch.hosts = "a,b";
  options.launch.interface = "gw0";
  const cli::Words ours = cli::step_command(
      options, {.codec = "int8", .accumulate = 3, .local_steps = 77, .fragments = 7},
      "/bin/gradwire");
  EXPECT_THAT(ours, AllOf(Contains("int8"), Contains("77"), Contains("7"), Contains("4 MiB")));
  EXPECT_THAT(ours, Contains("--hosts"));
  const cli::Words theirs = cli::ddp_command(
      options, {.codec = "bf16"}, workload::profile_named("resnet50"), "/bin/gradwire", "s.py");
  EXPECT_THAT(theirs, Contains("gw0"));
  const auto job = nlohmann::json::parse(theirs.back());
  EXPECT_EQ(job["layers"].size(), 54u);
  EXPECT_EQ(job["compute_ms"], 50);
}

}  // namespace
}  // namespace gradwire::test
