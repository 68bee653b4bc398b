#include "gradwire/exchange/auto_exchange.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/exchanging.h"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

struct ManualClock final : Clock {
  Time now() const override { return time; }
  Time time{};
};

/// Ranks whose steps take as long as the test says. Whether a step was coded is inferred from the
/// bytes sent.
struct AutoJob {
  /// By rank: duration of a plain and of a coded step.
  std::vector<std::pair<Duration, Duration>> durations;
  exchange::ExchangeOptions options;
  /// From this step on, all ranks use `later`.
  int change_at = 1000;
  std::pair<Duration, Duration> later = {};

  /// Before each step, this many are abandoned, which take long.
  int abandoned = 0;

  std::vector<std::vector<bool>> coded;  ///< By rank, step.
  std::vector<std::string> described;

  Duration duration(std::size_t rank, int step, bool is_coded) const {
    const auto& both = step < change_at ? durations[rank] : later;
    return is_coded ? both.second : both.first;
  }

  void run(int steps) {
    const auto ranks = static_cast<int>(durations.size());
    const auto shapes = shapes_of({20'000});
    coded.assign(durations.size(), {});
    described.assign(durations.size(), "");
    LocalJob job(ranks);
    const auto errors = job.run([&](Rank rank, Communicator& c) {
      const auto r = static_cast<std::size_t>(rank);
      const auto clock = std::make_shared<ManualClock>();
      exchange::ExchangeOptions own = options;
      own.clock = clock;
      const auto exchange = exchange::make_exchange(shared(c), shapes, own);
      Started started(*exchange);
      for (int step = 0; step < steps; ++step) {
        for (int dropped = 0; dropped < abandoned; ++dropped) {
          Gradients gradients = draw_gradients(shapes, rank, 0);
          average_step(*exchange, gradients, 0);
          clock->time += std::chrono::seconds(7);
          exchange->end_step(exchange::StepOutcome::abandoned);
        }
        c.barrier().wait();
        Gradients gradients = draw_gradients(shapes, rank, static_cast<std::uint64_t>(step));
        const std::size_t sent = c.payload_bytes_sent();
        started.start(0, {gradients[0].data(), 20'000, DataType::float32, nullptr}, 0);
        started.wait(0);
        c.barrier().wait();
        coded[r].push_back(c.payload_bytes_sent() - sent < 40'000);
        clock->time += duration(r, step, coded[r].back());
        exchange->end_pass();
        exchange->end_step(exchange::StepOutcome::committed);
      }
      described[r] = exchange->describe();
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    for (const auto& one : coded) EXPECT_EQ(one, coded[0]) << "ranks must do the same";
  }
};

TEST(AutoExchange, KeepsACodecThatMakesStepsShorter) {
  AutoJob job{
      .durations{{milliseconds(100), milliseconds(80)}, {milliseconds(100), milliseconds(81)}},
      .options{.codec = "auto:int8", .trial_steps = 2}};
  job.run(10);
  EXPECT_TRUE(job.coded[0][8] && job.coded[0][9]);
  EXPECT_THAT(job.described[0], HasSubstr("auto: int8 (a step takes 80.5 ms"));
}

TEST(AutoExchange, SwitchesOffACodecThatMakesStepsLonger) {
  AutoJob job{
      .durations{{milliseconds(100), milliseconds(120)}, {milliseconds(90), milliseconds(100)}},
      .options{.codec = "auto", .trial_steps = 2}};
  job.run(10);
  EXPECT_FALSE(job.coded[0][8] || job.coded[0][9]);
  EXPECT_THAT(job.described[1], HasSubstr("auto: none (a step takes 110 ms with int8"));
}

TEST(AutoExchange, SwitchesOffACodecThatSavesHalfAPerCent) {
  AutoJob job{
      .durations{{milliseconds(1000), milliseconds(995)}, {milliseconds(1000), milliseconds(995)}},
      .options{.codec = "auto", .trial_steps = 1}};
  job.run(8);
  EXPECT_FALSE(job.coded[0][7]);
}

TEST(AutoExchange, RanksThatMeasureDifferentlyDecideTheSame) {
  AutoJob job{.durations{{milliseconds(100), milliseconds(90)},
                         {milliseconds(100), milliseconds(150)},
                         {milliseconds(100), milliseconds(95)}},
              .options{.codec = "auto", .trial_steps = 3}};
  job.run(12);
  EXPECT_FALSE(job.coded[0][11]);
}

TEST(AutoExchange, MeasuresAgainLater) {
  AutoJob job{
      .durations{{milliseconds(100), milliseconds(50)}, {milliseconds(100), milliseconds(50)}},
      .options{.codec = "auto", .trial_steps = 1, .steps_between_trials = 5},
      .change_at = 10,
      .later = {milliseconds(100), milliseconds(200)}};
  job.run(30);
  EXPECT_TRUE(job.coded[0][8]);
  EXPECT_FALSE(job.coded[0][29]);
}

TEST(AutoExchange, BeginsItsTrialAfterTheWarmUp) {
  AutoJob job{
      .durations{{milliseconds(100), milliseconds(50)}, {milliseconds(100), milliseconds(50)}},
      .options{.codec = "auto", .warmup_steps = 4, .trial_steps = 1}};
  job.run(12);
  const std::vector<bool> warm(job.coded[0].begin(), job.coded[0].begin() + 4);
  EXPECT_EQ(warm, std::vector<bool>(4, false));
  EXPECT_TRUE(job.coded[0][11]);
}

TEST(AutoExchange, AbandonedStepsDoNotCountInATrial) {
  AutoJob job{
      .durations{{milliseconds(100), milliseconds(80)}, {milliseconds(100), milliseconds(81)}},
      .options{.codec = "auto:int8", .can_abandon = true, .trial_steps = 3}};
  job.run(12);
  const auto expected = job.coded;
  job.abandoned = 1;
  job.run(12);
  EXPECT_EQ(job.coded, expected);
  EXPECT_THAT(job.described[0], HasSubstr("auto: int8 (a step takes"));
}

TEST(AutoTrial, OneSlowStepDecidesNothing) {
  exchange::AutoTrial trial(3);
  int plain = 0;
  while (!trial.complete()) {
    if (trial.next_is_coded()) {
      trial.add(milliseconds(20));
    } else {
      trial.add(milliseconds(++plain == 3 ? 1000 : 10));
    }
  }
  EXPECT_DOUBLE_EQ(trial.result().plain, 0.010);
  EXPECT_DOUBLE_EQ(trial.result().coded, 0.020);
}

}  // namespace
}  // namespace gradwire::test
