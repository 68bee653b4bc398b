#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/plan/check/phase_check.h"
#include "gradwire/plan/check/run_phases.h"
#include "gradwire/report/run_record.h"
#include "gradwire/trace/chrome_trace.h"

namespace gradwire::plan {
namespace {

using ::testing::HasSubstr;

Time at(int milliseconds) {
  return Time(std::chrono::milliseconds(milliseconds));
}

/// Steps of 100 ms: 30 forward, 50 backward, 12 waiting, 5 optimizer, 3 idle; a bucket is in flight
/// from 40 to 92.
RankTrace trace_of(Rank rank, int steps) {
  RankTrace trace{.rank = rank, .host = "a", .clock = {}, .log = {}};
  trace.log.names = {"x"};
  for (int step = 0; step < steps; ++step) {
    const int begin = 100 * step;
    const auto span = [&](TraceKind kind, int from, int to) {
      trace.log.spans.push_back({kind, 0, step, at(begin + from), at(begin + to), 0});
    };
    span(TraceKind::forward, 0, 30);
    span(TraceKind::backward, 30, 80);
    span(TraceKind::wait, 80, 92);
    span(TraceKind::communication, 40, 92);
    span(TraceKind::optimizer, 92, 97);
    span(TraceKind::step, 0, 100);
  }
  return trace;
}

std::string written(int ranks) {
  std::string text;
  ChromeTraceWriter writer([&](std::string_view piece) { text += piece; }, at(0));
  for (Rank rank = 0; rank < ranks; ++rank) writer.add(trace_of(rank, 5));
  writer.finish();
  return text;
}

TEST(ReadRun, ATraceSaysWhereStepsWent) {
  const auto runs = parse_run(written(3), "trace.json");
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 1u);
  const StepPhases& phases = runs->front().phases;
  EXPECT_EQ(runs->front().how.ranks, 3);
  EXPECT_NEAR(phases.step, 0.1, 1e-9);
  EXPECT_NEAR(phases.forward, 0.03, 1e-9);
  EXPECT_NEAR(phases.backward, 0.05, 1e-9);
  EXPECT_NEAR(phases.exposed, 0.012, 1e-9);
  EXPECT_NEAR(phases.update, 0.005, 1e-9);
  EXPECT_NEAR(phases.communication, 0.052, 1e-9);
  EXPECT_NEAR(phases.compute, 0.088, 1e-9);
}

TEST(ReadRun, RowsOfBenchStepSayHowTheyWereRun) {
  const auto runs = parse_run(
      R"({"rows": [
        {"system": "gradwire", "codec": "int8", "accumulate": 2, "local_steps": 1,
         "overlap": "backward", "ranks": 4, "steps": 9, "single_ms": 200, "step_ms": 250,
         "exposed_ms": 50, "eta": 0.8, "bytes_per_step": 5, "cpu_ms": 7},
        {"system": "ddp", "codec": "none", "accumulate": 2, "local_steps": 1,
         "overlap": "backward", "ranks": 4, "steps": 9, "single_ms": 200, "step_ms": 350,
         "exposed_ms": 150, "eta": 0.6, "bytes_per_step": 5, "cpu_ms": 7}]})",
      "run.json");
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 1u);  // Runs of peers are not predicted.
  const MeasuredRun& run = runs->front();
  EXPECT_EQ(run.how.codec, "int8");
  EXPECT_EQ(run.how.overlap, "backward");
  EXPECT_EQ(run.how.accumulate, 2);
  EXPECT_NEAR(run.phases.step, 0.25, 1e-12);
  EXPECT_NEAR(run.phases.compute, 0.2, 1e-12);
  EXPECT_LT(run.phases.forward, 0);  // Unknown.
}

TEST(ReadRun, ARunRecordAndItsSummary) {
  report::RunRecord record{.name = "mine"};
  record.summary.ranks = 4;
  record.summary.compute_seconds = 0.08;
  record.summary.exposed_seconds = 0.01;
  record.summary.data_seconds = 0.002;
  for (const std::string& text :
       {report::run_record_json(record), report::summary_json(record.summary)}) {
    const auto runs = parse_run(text, "run.json");
    ASSERT_TRUE(runs) << runs.error().message;
    EXPECT_EQ(runs->front().how.ranks, 4);
    EXPECT_NEAR(runs->front().phases.step, 0.092, 1e-9);
    EXPECT_NEAR(runs->front().phases.exposed, 0.01, 1e-9);
  }
}

TEST(ReadRun, ARunRecordSaysHowItWasTrained) {
  report::RunRecord record{.name = "mine"};
  record.summary.ranks = 4;
  const auto how_of = [&](const char* config) {
    record.config = config;
    return parse_run(report::run_record_json(record), "run.json").value().front().how;
  };
  const RunCase plain = how_of("{}");
  EXPECT_EQ(plain.codec, "none");
  EXPECT_EQ(plain.overlap, "");
  EXPECT_EQ(plain.accumulate, 1);
  EXPECT_EQ(plain.local_steps, 1);
  const RunCase coded = how_of(
      R"({"parallel": {"codec": "int8", "overlap": "none"}, "gradient_accumulation_steps": 4})");
  EXPECT_EQ(coded.codec, "int8");
  EXPECT_EQ(coded.overlap, "none");
  EXPECT_EQ(coded.accumulate, 4);
  const RunCase local = how_of(R"({"local_steps": {"steps": 16, "fragments": 2,
                                   "overlap_steps": 7, "codec": "bf16"}})");
  EXPECT_EQ(local.codec, "bf16");
  EXPECT_EQ(local.local_steps, 16);
  EXPECT_EQ(local.fragments, 2);
  EXPECT_EQ(local.overlap_steps, 7);
  for (const char* wrong : {R"({"zero": {"stage": 2}})", R"({"parallel": {"codec": 7}})"}) {
    record.config = wrong;
    EXPECT_FALSE(parse_run(report::run_record_json(record), "run.json")) << wrong;
  }
}

TEST(ReadRun, RowsOfZeroAreNotThoseOfAllReduces) {
  const auto rows = [](int second_stage) {
    std::string text;
    for (const int stage : {1, second_stage}) {
      text += fmt::format(
          R"({}{{"system": "gradwire", "codec": "none", "accumulate": 1, "local_steps": 1,
              "overlap": "full", "ranks": 4, "steps": 9, "single_ms": 200, "step_ms": 250,
              "exposed_ms": 50, "eta": 0.8, "bytes_per_step": 5, "cpu_ms": 7,
              "zero_stage": {}}})",
          text.empty() ? "" : ",", stage);
    }
    return parse_run("{\"rows\": [" + text + "]}", "rows.json");
  };
  EXPECT_EQ(rows(0).value().size(), 1u);
  const auto none = rows(3);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("without ZeRO"));
}

TEST(ReadRun, SaysWhatItExpected) {
  for (const char* wrong : {"", "[]", "not json"}) {
    const auto runs = parse_run(wrong, "run.json");
    ASSERT_FALSE(runs);
    EXPECT_THAT(runs.error().message, HasSubstr("run.json: not the JSON of"));
  }
  EXPECT_FALSE(parse_run(R"({"traceEvents": []})", "t"));
  EXPECT_FALSE(parse_run(R"({"traceEvents": [{"ph": "X"}]})", "t"));
  EXPECT_FALSE(parse_run("{}", "t"));
  EXPECT_EQ(read_run("/no/such/file").error().kind, ErrorKind::system);
}

TEST(CheckPhases, SaysHowFarItIsOffAndWhere) {
  StepPhases predicted, measured;
  predicted.forward = measured.forward = 0.03;
  predicted.backward = measured.backward = 0.05;
  predicted.exposed = 0.01;
  measured.exposed = 0.03;
  predicted.step = 0.09;
  measured.step = 0.11;
  measured.data = 0;  // Not predicted.
  const auto checks = check_phases(predicted, measured);
  ASSERT_EQ(checks.size(), 4u);
  EXPECT_EQ(checks.back().phase, "step");
  EXPECT_NEAR(step_error(checks), 1 - 9.0 / 11, 1e-9);
  const std::string text = format_checks(checks);
  EXPECT_THAT(text, HasSubstr("-18.2 %"));
  EXPECT_THAT(text, HasSubstr("exposed, predicted 20.00 ms too short"));
}

TEST(CheckPhases, AGoodPredictionBlamesNobody) {
  StepPhases phases;
  phases.compute = 0.1;
  phases.exposed = 0;
  phases.step = 0.1;
  const std::string text = format_checks(check_phases(phases, phases));
  EXPECT_THAT(text, ::testing::EndsWith("predicted 100.00 ms: +0.0 %.\n"));
  EXPECT_LT(step_error({}), 0);
}

}  // namespace
}  // namespace gradwire::plan
