#include "gradwire/trace/trace_clock.h"

#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/trace/trace_collection.h"
#include "tests/support/manual_trace.h"

namespace gradwire {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::at;

TEST(TraceClock, TheShortestRoundTripDecides) {
  const auto reading = read_clock(std::vector<ClockSample>{
      {at(0), at(1300), at(100)}, {at(200), at(1203), at(206)}, {at(300), at(1390), at(390)}});
  EXPECT_EQ(reading.at, at(203));
  EXPECT_EQ(reading.ahead, milliseconds(1000));
  EXPECT_GE(reading.error, milliseconds(3));
  EXPECT_LE(reading.error, milliseconds(3) + Duration(1));
}

TEST(TraceClock, IsWrongByNoMoreThanItsErrorHoweverUnevenTheWays) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const Duration ahead(random.between(-1'000'000'000, 1'000'000'000));
    std::vector<ClockSample> samples;
    Time now = at(5);
    for (int i = 0; i < 4; ++i) {
      const Duration there(random.between(0, 100'000));
      const Duration back(random.between(0, 100'000));
      samples.push_back({now, now + there + ahead, now + there + back});
      now += there + back;
    }
    const auto reading = read_clock(samples);
    EXPECT_LE(std::chrono::abs(reading.ahead - ahead), reading.error) << seed;
  }
}

TEST(TraceClock, DriftIsEvenBetweenTheReadings) {
  const ClockAlignment clock{.first = {at(1000), milliseconds(10), microseconds(5)},
                             .last = {at(3000), milliseconds(14), microseconds(3)}};
  EXPECT_EQ(clock.aligned(at(500)), at(510)) << "before: as at the first";
  EXPECT_EQ(clock.aligned(at(1000)), at(1010));
  EXPECT_EQ(clock.aligned(at(2000)), at(2012));
  EXPECT_EQ(clock.aligned(at(3000)), at(3014));
  EXPECT_EQ(clock.aligned(at(9000)), at(9014)) << "after: as at the last";
  EXPECT_EQ(clock.error(), microseconds(5));
}

TEST(TraceClock, ErrorsOfTheReadingsAreNoDrift) {
  const ClockAlignment clock{.first = {at(1000), microseconds(300), microseconds(200)},
                             .last = {at(1100), microseconds(-10), microseconds(120)}};
  for (const auto now : {500, 1000, 1050, 1100, 9000})
    EXPECT_EQ(clock.aligned(at(now)), at(now) + microseconds(105)) << now << ": 100 to 110 us";
}

TEST(TraceClock, KeepsTheOrderOfMoments) {
  const ClockAlignment clock{.first = {at(0), milliseconds(50), {}},
                             .last = {at(100'000), milliseconds(-50), {}}};
  Random random(1);
  Time before = clock.aligned(at(-100));
  for (Time now = at(-100); now < at(100'100); now += Duration(random.between(1, 50'000'000))) {
    const auto aligned = clock.aligned(now);
    EXPECT_GE(aligned, before);
    before = aligned;
  }
}

}  // namespace
}  // namespace gradwire
