#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/cli/bench/pipeline_compare.h"
#include "gradwire/cli/bench/pipeline_report.h"
#include "tests/cli/launched.h"

/// `gradwire bench pipeline`, as the real program, and its figures.
namespace gradwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct BenchOutcome {
  int status;
  std::string out;
  std::string err;
};

BenchOutcome bench_pipeline(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{gradwire::test::gradwire_program(), "bench", "pipeline"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  gradwire::test::Launched launched(command);
  const int status = launched.wait();
  return {status, launched.out(), launched.err()};
}

TEST(BenchPipeline, MeasuresEachScheduleAndPredictsIt) {
  const auto outcome = bench_pipeline({"--stages", "3", "--micro-batches", "6", "--schedule",
                                       "1f1b:3,zero_bubble:5,interleaved,forward_only",
                                       "--forward-ms", "3", "--input-ms", "3", "--weight-ms", "3",
                                       "--message-bytes", "10K", "--steps", "4", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 4U);
  const std::map<std::string, int> kept{
      {"1f1b:3", 3}, {"zero_bubble:5", 5}, {"interleaved", 8}, {"forward_only", 1}};
  for (const auto& row : rows) {
    const std::string name = row["schedule"];
    EXPECT_EQ(row["system"], "gradwire");
    EXPECT_EQ(row["kept"], kept.at(name)) << name;
    const double ideal = name == "forward_only" ? 18 : 54;
    EXPECT_NEAR(row["ideal_ms"].get<double>(), ideal, 1e-9) << name;
    EXPECT_GE(row["step_ms"].get<double>(), 0.999 * ideal) << name;
    EXPECT_GE(row["predicted_ms"].get<double>(), 0.999 * ideal) << name;
  }
}

TEST(BenchPipeline, PrintsATable) {
  const auto outcome =
      bench_pipeline({"-n", "2", "--micro-batches", "2", "--schedule", "gpipe", "--barrier",
                      "--forward-ms", "1", "--input-ms", "1", "--weight-ms", "1", "--steps", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("# 2 ranks, 2 micro-batches"), HasSubstr("a transfer"),
                                 HasSubstr("gpipe      yes")));
}

TEST(BenchPipeline, RefusesWhatItCannotMeasureBeforeRanksStart) {
  const std::map<std::vector<std::string>, std::string> wrong{
      {{"--stages", "2", "--schedule", "1f1c"}, "1f1b"},
      {{"--stages", "2", "--schedule", "zero_bubble:x"}, "expected a number"},
      {{"--stages", "3", "-n", "2"}, "the job has 2 ranks"},
      {{"--stages", "2", "--message-bytes", "many"}, "many"},
      {{"--compare", "torch"}, "give --stages"},
      {{"--stages", "2", "--compare", "torhc"}, "torch"}};
  for (const auto& [arguments, message] : wrong) {
    const auto outcome = bench_pipeline(arguments);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(BenchPipeline, KnowsPyTorchsNamesOfSchedules) {
  EXPECT_EQ(torch_schedule("1f1b:4"), "1F1B");
  EXPECT_EQ(torch_schedule("interleaved:2"), "Interleaved1F1B");
  EXPECT_EQ(torch_schedule("zero_bubble_v"), "ZBVZeroBubble");
  EXPECT_EQ(torch_schedule("zero_bubble"), std::nullopt);
}

TEST(BenchPipeline, ReadsTheRowsThatItWrites) {
  PipelineRow row{.schedule = "gpipe", .barrier = true};
  row.figures = {.step = 0.5, .ideal = 0.25, .bubble = 0.5, .predicted = 0.5, .kept = 3};
  const auto read = parse_pipeline_rows("noise\n" + pipeline_json(std::vector{row}), 1);
  ASSERT_TRUE(read);
  EXPECT_EQ(pipeline_json(*read), pipeline_json(std::vector{row}));
  EXPECT_FALSE(parse_pipeline_rows(pipeline_json(std::vector{row}), 2));
  EXPECT_FALSE(parse_pipeline_rows("no JSON", 1));
}

}  // namespace
}  // namespace gradwire::cli
