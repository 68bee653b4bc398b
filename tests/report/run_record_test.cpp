#include "gradwire/report/run_record.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/report/step_log.h"

namespace gradwire::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunRecord some_record() {
  return {.name = "<b>\"ddp\" & more",
          .strategy = "DDP x4",
          .config = R"({"epochs":3})",
          .hosts = {"a", "a", "b", "b"},
          .summary = {.ranks = 4,
                      .steps = 6,
                      .test_accuracy = 0.75,
                      .test_loss = 0.5,
                      .test_images = 100,
                      .images_per_second = 1234.5,
                      .training = std::chrono::milliseconds(1500),
                      .compute_seconds = 0.25,
                      .exposed_seconds = 0.125,
                      .data_seconds = 0.5,
                      .gradient_bytes = 1e6,
                      .sent_bytes = 1.5e6,
                      .codec = "int8: 8 bits",
                      .staleness = {{.mean = 3,
                                     .p50 = 2,
                                     .p99 = 5,
                                     .max = 7,
                                     .rate = 0.5,
                                     .late = 0.25,
                                     .busy = 0.125,
                                     .by_worker = {{2.5, 6}, {3.5, 7}},
                                     .by_unit = {{3, 7}},
                                     .predicted = {{.mean = 3.25, .p99 = 6, .late = 0.125}},
                                     .advice = "use mode async"}},
                      .checkpoint = "out/model.safetensors",
                      .memory = {.bytes = 21,
                                 .at_peak = {1, 2, 3, 4, 5, 6},
                                 .max = {2, 3, 4, 5, 6, 7},
                                 .resident = 4096}},
          .steps = {{.step = 0,
                     .loss = 2.5,
                     .compute = 0.25,
                     .exposed = 0.125,
                     .data = 0.0625,
                     .learning_rate = 0.01},
                    {.step = 2,
                     .loss = std::numeric_limits<double>::infinity(),
                     .compute = 0.5,
                     .exposed = 0,
                     .data = 0}},
          .every = 2,
          .tests = {{.steps = 3, .loss = 0.5, .accuracy = 0.75}},
          .epoch_seconds = {1.5, 1.25},
          .memory = {.samples = {{.seconds = 0.5, .step = -1, .bytes = {1, 2, 3, 4, 5, 6}},
                                 {.seconds = 0.75, .step = 1, .bytes = {7, 8, 9, 10, 11, 12}}},
                     .peak_bytes = 60},
          .peak_rank_bytes = 70};
}

nlohmann::json some_json() {
  return nlohmann::json::parse(run_record_json(some_record()));
}

std::string message_for(const nlohmann::json& object) {
  const auto record = parse_run_record(object.dump());
  return record ? "" : record.error().message;
}

TEST(RunRecord, ComesBackAsItWas) {
  const auto before = some_record();
  const auto record = parse_run_record(run_record_json(before));
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->name, before.name);
  EXPECT_EQ(record->strategy, before.strategy);
  EXPECT_EQ(record->config, before.config);
  EXPECT_EQ(summary_json(record->summary), summary_json(before.summary));
  ASSERT_EQ(record->steps.size(), 2);
  EXPECT_EQ(record->steps[0].loss, 2.5);
  EXPECT_EQ(record->steps[0].seconds(), 0.4375);
  EXPECT_TRUE(std::isnan(record->steps[1].loss));  // JSON has no infinity.
  EXPECT_EQ(record->steps[1].step, 2);
  EXPECT_EQ(record->every, 2);
  EXPECT_EQ(record->steps[0].learning_rate, 0.01);
  EXPECT_TRUE(std::isnan(record->steps[1].learning_rate));  // Unknown.
  EXPECT_EQ(record->hosts, before.hosts);
  ASSERT_EQ(record->tests.size(), 1);
  EXPECT_EQ(record->tests[0].steps, 3);
  EXPECT_EQ(record->tests[0].loss, 0.5);
  EXPECT_EQ(record->tests[0].accuracy, 0.75);
  EXPECT_THAT(record->epoch_seconds, ElementsAre(1.5, 1.25));
  ASSERT_EQ(record->memory.samples.size(), 2);
  EXPECT_EQ(record->memory.samples[0].step, -1);
  EXPECT_EQ(record->memory.samples[1].seconds, 0.75);
  EXPECT_THAT(record->memory.samples[1].bytes, ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_EQ(record->memory.peak_bytes, 60);
  EXPECT_EQ(record->peak_rank_bytes, 70);
}

TEST(RunRecord, NamesAKeyThatIsMissing) {
  const std::set<std::string> optional{"hosts", "tests", "memory"};
  const auto whole = some_json();
  for (const auto& item : whole.items()) {
    auto object = whole;
    object.erase(item.key());
    if (optional.contains(item.key())) {
      EXPECT_EQ(message_for(object), "");
    } else {
      EXPECT_THAT(message_for(object), HasSubstr(item.key() + " is missing"));
    }
  }
}

TEST(RunRecord, NeedsNoLearningRates) {
  auto object = some_json();
  object["steps"].erase("learning_rate");
  EXPECT_EQ(message_for(object), "");
}

TEST(RunRecord, WhatIsWrongIsNamed) {
  const auto with = [](const char* pointer, nlohmann::json value) {
    auto object = some_json();
    object[nlohmann::json::json_pointer(pointer)] = std::move(value);
    return message_for(object);
  };
  EXPECT_THAT(with("/format", "a picture"), HasSubstr("format is \"a picture\""));
  EXPECT_THAT(with("/version", 2), HasSubstr("version is 2; it must be 1"));
  EXPECT_THAT(with("/name", 5), HasSubstr("name is 5; it must be a string"));
  EXPECT_THAT(with("/steps/compute_s", {1.0}), HasSubstr("steps.compute_s"));
  EXPECT_THAT(with("/steps/learning_rate", {1.0}), HasSubstr("steps.learning_rate"));
  EXPECT_THAT(with("/tests/accuracy", {0.5, 0.5}), HasSubstr("tests.accuracy"));
  EXPECT_THAT(with("/hosts", {1}), HasSubstr("hosts"));
  EXPECT_THAT(with("/steps/loss", "none"), HasSubstr("steps.loss is \"none\""));
  EXPECT_THAT(with("/steps/exposed_s", {0.1, nullptr}), HasSubstr("steps.exposed_s"));
  EXPECT_THAT(with("/memory/bytes/gradients", {1, -1}), HasSubstr("memory.bytes.gradients"));
  EXPECT_THAT(with("/memory/bytes/optimizer", {1, 1}), HasSubstr("did you mean \"optimiser\""));
  EXPECT_THAT(with("/summary/test_accuracy", 75), HasSubstr("summary.test_accuracy is 75"));
  EXPECT_THAT(with("/summary/staleness/by_worker/max", {6}), HasSubstr("by_worker.max"));
  EXPECT_THAT(with("/summary/staleness/predicted/late", 2), HasSubstr("predicted.late is 2"));
  EXPECT_THAT(with("/stpes", 1), HasSubstr("did you mean \"steps\""));
  EXPECT_THAT(parse_run_record("{").error().message, HasSubstr("not JSON"));
  EXPECT_THAT(parse_run_record("[]").error().message, HasSubstr("must be an object"));
}

TEST(RunRecord, SummaryAlone) {
  const auto before = some_record().summary;
  const auto summary = parse_summary(summary_json(before));
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary_json(*summary), summary_json(before));
  EXPECT_THAT(parse_summary(R"({"ranks": 0})").error().message, HasSubstr("ranks is 0"));
}

std::vector<std::int64_t> steps_kept(std::size_t max, std::int64_t added) {
  StepLog log(max);
  for (std::int64_t i = 0; i < added; ++i) log.add({.step = i});
  std::vector<std::int64_t> kept;
  for (const auto& step : log.steps()) {
    EXPECT_EQ(step.step, log.every() * static_cast<std::int64_t>(kept.size()));
    kept.push_back(step.step);
  }
  return kept;
}

TEST(StepLog, KeepsEverySecondStepWhenThereAreTooMany) {
  EXPECT_THAT(steps_kept(4, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(steps_kept(4, 5), ElementsAre(0, 2, 4));
  EXPECT_THAT(steps_kept(4, 9), ElementsAre(0, 4, 8));
  const auto kept = steps_kept(1000, 123'457);
  EXPECT_GT(kept.size(), 400);
  EXPECT_LE(kept.size(), 1000);
  EXPECT_GT(kept.back(), 123'000);
}

TEST(MemoryTimeline, ThinnedKeepsPeaks) {
  std::vector<MemorySample> samples(100);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].step = static_cast<std::int64_t>(i);
    samples[i].bytes = {1, static_cast<std::int64_t>(i % 10 == 7 ? 50 : i % 3)};
  }
  const auto kept = thinned(samples, 10);
  ASSERT_EQ(kept.size(), 10);
  for (const auto& sample : kept) EXPECT_EQ(sample.step % 10, 7);
  EXPECT_EQ(thinned(samples, 100).size(), 100);
}

/// A record of steps from `begin` to `end`, every `every`-th, of one second each.
RunRecord record_of(std::int64_t begin, std::int64_t end, std::int64_t every) {
  RunRecord record{.every = every, .epoch_seconds = {static_cast<double>(end - begin)}};
  for (auto step = begin; step < end; step += every)
    record.steps.push_back({.step = step, .compute = 1});
  record.summary.steps = end - begin;
  record.summary.training = std::chrono::seconds(end - begin);
  return record;
}

std::vector<std::int64_t> numbers_of(const RunRecord& record) {
  std::vector<std::int64_t> numbers;
  for (const RunStep& step : record.steps) numbers.push_back(step.step);
  return numbers;
}

TEST(ContinuedRecord, HasTheStepsBeforeAndTheTimeOfBoth) {
  const RunRecord both = continued(record_of(0, 7, 1), record_of(7, 15, 2));
  EXPECT_THAT(numbers_of(both), ElementsAre(0, 2, 4, 6, 7, 9, 11, 13));
  EXPECT_EQ(both.every, 2);
  EXPECT_EQ(both.summary.steps, 15);
  EXPECT_EQ(both.summary.training, std::chrono::seconds(15));
  EXPECT_THAT(both.epoch_seconds, ElementsAre(7, 8));
}

TEST(ContinuedRecord, LeavesOutWhatWasTrainedAfterTheCheckpoint) {
  const RunRecord both = continued(record_of(0, 9, 1), record_of(5, 8, 1));
  EXPECT_THAT(numbers_of(both), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(both.summary.steps, 8);
  EXPECT_EQ(both.summary.training, std::chrono::seconds(8));
}

TEST(ContinuedRecord, KeepsTestsUpToTheCheckpoint) {
  RunRecord earlier = record_of(0, 9, 1), later = record_of(6, 12, 1);
  earlier.tests = {{.steps = 3}, {.steps = 6}, {.steps = 9}};
  later.tests = {{.steps = 12}};
  std::vector<std::int64_t> steps;
  for (const RunTest& test : continued(earlier, later).tests) steps.push_back(test.steps);
  EXPECT_THAT(steps, ElementsAre(3, 6, 12));
}

TEST(ContinuedRecord, OfARunFromTheBeginningIsThatRun) {
  const RunRecord both = continued(record_of(0, 9, 1), record_of(0, 3, 1));
  EXPECT_THAT(numbers_of(both), ElementsAre(0, 1, 2));
  EXPECT_THAT(both.epoch_seconds, ElementsAre(3));
}

TEST(ContinuedRecord, StaysBounded) {
  const RunRecord both = continued(record_of(0, 8000, 1), record_of(8000, 16000, 1));
  EXPECT_LE(both.steps.size(), StepLog::kMaxSteps);
  EXPECT_EQ(both.every, 2);
  EXPECT_EQ(both.steps.back().step, 15998);
}

}  // namespace
}  // namespace gradwire::report
