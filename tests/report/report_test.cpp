#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/statistics.h"
#include "gradwire/report/progress.h"
#include "gradwire/report/training_summary.h"

namespace gradwire::report {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Statistics, Median) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 9, 2}), 3);
}

TEST(Statistics, TextbookBytes) {
  EXPECT_EQ(textbook_all_reduce_bytes(1, 100), 0);
  EXPECT_EQ(textbook_all_reduce_bytes(2, 100), 100);
  EXPECT_EQ(textbook_all_reduce_bytes(4, 100), 150);
}

TEST(Statistics, ScalingEfficiency) {
  EXPECT_EQ(scaling_efficiency(3, 1), 0.75);
  EXPECT_EQ(scaling_efficiency(0, 0), 1);
}

TEST(Progress, ClockTexts) {
  EXPECT_EQ(format_clock(seconds(0)), "0:00");
  EXPECT_EQ(format_clock(seconds(65)), "1:05");
  EXPECT_EQ(format_clock(milliseconds(59700)), "1:00");
  EXPECT_EQ(format_clock(seconds(3661)), "1:01:01");
}

const TrainingProgress kProgress{.epoch = 3,
                                 .epochs = 8,
                                 .step = 120,
                                 .steps = 468,
                                 .loss = 0.31239,
                                 .images_per_second = 3412.4,
                                 .communication_share = 0.123,
                                 .left = seconds(65)};

TEST(Progress, TheLineHasEverything) {
  EXPECT_EQ(progress_line(kProgress),
            "epoch 3/8  step 120/468  loss 0.3124  3412 images/s  communication 12 %  1:05 left");
}

TEST(Progress, OnATerminalOneLineKeepsChanging) {
  std::ostringstream out;
  ProgressPrinter printer(out, true);
  printer.update(kProgress, Time(seconds(1)));
  printer.update(kProgress, Time(seconds(1) + milliseconds(50)));
  printer.update(kProgress, Time(seconds(2)));
  printer.end_line();
  printer.end_line();
  const auto line = "\r\x1b[K" + progress_line(kProgress);
  EXPECT_EQ(out.str(), line + line + "\n");
}

TEST(Progress, ElsewhereALineNowAndThenAndTheLastOne) {
  std::ostringstream out;
  ProgressPrinter printer(out, false);
  auto progress = kProgress;
  for (int second = 0; second < 10; ++second) printer.update(progress, Time(seconds(second)));
  progress.epoch = 8;
  progress.step = 468;
  printer.update(progress, Time(seconds(9)));
  printer.end_line();
  const auto often = progress_line(kProgress) + "\n";
  EXPECT_EQ(out.str(), often + often + progress_line(progress) + "\n");
}

TEST(TrainingSummary, SaysWhatWasMeasuredAndHow) {
  const auto text = format_summary({.ranks = 4,
                                    .steps = 936,
                                    .test_accuracy = 0.9015,
                                    .test_loss = 0.27,
                                    .test_images = 10000,
                                    .images_per_second = 2326,
                                    .training = seconds(52),
                                    .compute_seconds = 0.03,
                                    .exposed_seconds = 0.01,
                                    .gradient_bytes = 2.0 * (1 << 20),
                                    .sent_bytes = 3.0 * (1 << 20),
                                    .checkpoint = "out/model.safetensors"});
  for (const auto* part : {"4 ranks: 936 steps in 0:52", "90.15 % of 10000 images", "2326 images/s",
                           "30.00 ms a step", "10.00 ms a step", "75.0 % = T_s / (T_s + T_c)",
                           "1.000 of the textbook's 2(P-1)G/P = 3 MiB", "out/model.safetensors"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(TrainingSummary, SaysHowGradientsTravelledIfNotAsTheyAre) {
  EXPECT_THAT(format_summary({.ranks = 2, .steps = 1, .codec = "auto: int8, for"}),
              HasSubstr("  codec                auto: int8, for\n"));
  EXPECT_THAT(format_summary({.ranks = 2, .steps = 1}), Not(HasSubstr("codec")));
}

TEST(TrainingSummary, NamesTheWorkerAndTheUnitThatAreMostStale) {
  report::StalenessSummary staleness{.mean = 3, .max = 9};
  staleness.by_worker = {{2.5, 6}, {3.5, 7}, {3, 9}};
  const auto text_of = [&] {
    return format_summary({.ranks = 3, .steps = 1, .staleness = staleness});
  };
  EXPECT_THAT(text_of(), HasSubstr("most stale           mean 3.50 of worker 1 (maximum 7)\n"));
  EXPECT_THAT(text_of(), Not(HasSubstr("predicted")));
  staleness.by_unit = {{3, 8}, {2, 9}};
  staleness.predicted = {.mean = 2.25, .p99 = 6, .late = 0.125};
  staleness.advice = "leave it out";
  EXPECT_THAT(text_of(), HasSubstr("of worker 1 (maximum 7), 3.00 of unit 0 (maximum 8)\n"));
  EXPECT_THAT(text_of(), HasSubstr("predicted staleness  mean 2.25, 99th percentile 6 updates, "
                                   "12.5 % late: simulated"));
  EXPECT_THAT(text_of(), HasSubstr("advice               leave it out\n"));
  staleness.max = 0;
  EXPECT_THAT(text_of(), Not(HasSubstr("most stale")));
}

TEST(TrainingSummary, OfAWorldOfOneOrAnotherBackend) {
  EXPECT_THAT(format_summary({.ranks = 1, .steps = 1}), Not(HasSubstr("textbook")));
  EXPECT_THAT(format_summary({.ranks = 2, .steps = 1, .gradient_bytes = 8, .sent_bytes = -1}),
              HasSubstr("not counted by this backend"));
}

}  // namespace
}  // namespace gradwire::report
