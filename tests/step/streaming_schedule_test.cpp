#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/step/local_steps.h"

namespace gradwire::step {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns "b0" where fragment 0 starts and "e0" where it ends, in the first `steps` steps.
std::vector<std::string> events(const LocalStepsConfig& config, std::int64_t steps) {
  const StreamingSchedule schedule(config);
  std::vector<std::string> found;
  for (std::int64_t step = 1; step <= steps; ++step) {
    std::string text;
    if (const auto begins = schedule.begins_after(step)) text += "b" + std::to_string(*begins);
    if (const auto ends = schedule.ends_after(step)) text += "e" + std::to_string(*ends);
    found.push_back(text);
  }
  return found;
}

TEST(StreamingSchedule, AveragesEverythingAfterEveryHSteps) {
  EXPECT_THAT(events({.steps = 3}, 7), ElementsAre("", "", "b0e0", "", "", "b0e0", ""));
  EXPECT_THAT(events({.steps = 1}, 3), ElementsAre("b0e0", "b0e0", "b0e0"));
}

TEST(StreamingSchedule, TakesFragmentsInTurnAndEndsLater) {
  EXPECT_THAT(events({.steps = 4, .fragments = 2}, 8),
              ElementsAre("", "b0e0", "", "b1e1", "", "b0e0", "", "b1e1"));
  EXPECT_THAT(events({.steps = 6, .fragments = 2, .overlap_steps = 2}, 9),
              ElementsAre("", "", "b0", "", "e0", "b1", "", "e1", "b0"));
}

TEST(StreamingSchedule, EachFragmentOncePerHStepsAndOneAtATime) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    LocalStepsConfig config{.steps = random.between(1, 40)};
    config.fragments = random.between(1, config.steps);
    config.overlap_steps = random.between(0, config.steps / config.fragments - 1);
    const StreamingSchedule schedule(config);
    std::vector<int> begun(static_cast<std::size_t>(config.fragments));
    std::optional<std::size_t> in_flight;
    for (std::int64_t step = 1; step <= 3 * config.steps; ++step) {
      if (const auto begins = schedule.begins_after(step)) {
        EXPECT_FALSE(in_flight) << "round " << round << " step " << step;
        in_flight = begins;
        ++begun[*begins];
      }
      if (const auto ends = schedule.ends_after(step)) {
        EXPECT_EQ(in_flight, ends);
        in_flight.reset();
      }
    }
    EXPECT_THAT(begun, ::testing::Each(3));
  }
}

TEST(StreamingSchedule, RefusesWhatWouldOverlapItself) {
  const auto error_of = [](const LocalStepsConfig& config) -> std::string {
    try {
      const StreamingSchedule schedule(config);
    } catch (const Exception& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of({.steps = 8, .fragments = 2, .overlap_steps = 4}),
              HasSubstr("every 4 steps"));
  EXPECT_THAT(error_of({.steps = 2, .fragments = 3}), HasSubstr("3 fragments"));
  EXPECT_THAT(error_of({.steps = 0}), HasSubstr("positive"));
}

TEST(PlanFragments, CutsInOrderIntoAboutEqualParts) {
  EXPECT_THAT(plan_fragments({10, 10, 10, 10}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(plan_fragments({100, 1, 1}, 2), ElementsAre(0, 1, 1));
  EXPECT_THAT(plan_fragments({5, 0}, 3), ElementsAre(1, 2));
  EXPECT_THAT(plan_fragments({}, 3), ElementsAre());
  EXPECT_THAT(plan_fragments({1, 2, 3}, 1), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace gradwire::step
