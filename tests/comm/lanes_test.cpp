#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "tests/support/local_job.h"

namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Draws a random lane among those that have operations left.
int draw_lane(Random& random, const std::vector<std::size_t>& called, std::size_t max) {
  for (;;) {
    const std::size_t lane = random.below(called.size());
    if (called[lane] < max) return static_cast<int>(lane);
  }
}

TEST(Lanes, EachRankMayMixThemInAnOrderOfItsOwn) {
  constexpr std::size_t kLanes = 7;
  constexpr std::size_t kEach = 12;
  LocalJob job(4);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    Random random(77 + static_cast<std::uint64_t>(rank));
    std::vector<std::vector<float>> data(kLanes * kEach);
    std::vector<std::vector<float>> gathered(kLanes * kEach);
    std::vector<std::size_t> called(kLanes);
    std::vector<Work> works;
    while (works.size() < data.size()) {
      const int lane = draw_lane(random, called, kEach);
      const auto l = static_cast<std::size_t>(lane);
      const std::size_t n = called[l]++;
      auto& values = data[l * kEach + n];
      // Different sizes in each lane, below and above the eager limit.
      values.assign(1 + l * 11 + n * n * 700, static_cast<float>(rank + 1) * static_cast<float>(n));
      const OperationOptions options{.priority = static_cast<int>(random.below(3)), .lane = lane};
      if (n % 3 == 2) {
        auto& all = gathered[l * kEach + n];
        all.resize(4 * values.size());
        works.push_back(c.all_gather(lend(values), lend(all), options));
      } else {
        works.push_back(c.all_reduce(lend(values), ReduceOp::sum, options));
      }
    }
    for (const Work& work : works) work.wait();
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto n = static_cast<float>(i % kEach);
      if (i % kEach % 3 == 2) {
        ASSERT_EQ(gathered[i].front(), n);
        ASSERT_EQ(gathered[i].back(), 4 * n);
      } else {
        ASSERT_EQ(data[i].front(), 10 * n);
        ASSERT_EQ(data[i].back(), 10 * n);
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Lanes, ADisagreementWithinOneNamesIt) {
  LocalJob job(3);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> first(10), second(rank == 1 ? 21 : 20);
    const Work a = c.all_reduce(lend(first), ReduceOp::sum, {.lane = 4});
    const Work b = c.all_reduce(lend(second), ReduceOp::sum, {.lane = 9});
    a.wait();
    b.wait();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("operation #0 of lane 9"), HasSubstr("21 float32"),
                             HasSubstr("20 float32")));
  }
}

TEST(Lanes, AnOperationThatIsMissingInOneIsNamed) {
  LocalJob job(2);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> data(10);
    const OperationOptions options{.lane = rank, .timeout = std::chrono::milliseconds(300)};
    c.all_reduce(lend(data), ReduceOp::sum, options).wait();
  });
  EXPECT_THAT(errors[0] + errors[1],
              AllOf(HasSubstr("has not called it"),
                    testing::AnyOf(HasSubstr("all_reduce #0 of"),
                                   HasSubstr("all_reduce #0 in lane 1 of"))));
}

TEST(Lanes, ALaneIsANumberOfThirtyBits) {
  LocalJob job(2);
  std::vector<float> data(3);
  EXPECT_THROW(job.on(0).all_reduce(lend(data), ReduceOp::sum, {.lane = -1}), Exception);
  EXPECT_THROW(job.on(0).all_reduce(lend(data), ReduceOp::sum, {.lane = 1 << 30}), Exception);
  const auto errors = job.run([](Rank, Communicator& c) {
    std::vector<float> values(3, 1.0f);
    c.all_reduce(lend(values), ReduceOp::sum, {.lane = (1 << 30) - 1}).wait();
    EXPECT_EQ(values.front(), 2.0f);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Lanes, LanesReservedInsideACoalescedBlockAreExclusive) {
  LocalJob job(2);
  const auto errors = job.run([](Rank, Communicator& c) {
    const int before = c.reserve_lanes(3);
    int inside = 0;
    int deeper = 0;
    std::vector<float> data(10, 1);
    c.coalesced([&](Communicator& together) {
       inside = together.reserve_lanes(2);
       together.coalesced([&](Communicator& inner) { deeper = inner.reserve_lanes(1); });
       together.all_reduce(lend(data), ReduceOp::sum, {.lane = inside});
     }).wait();
    EXPECT_EQ(inside, before + 3);
    EXPECT_EQ(deeper, inside + 2);
    EXPECT_EQ(c.reserve_lanes(1), deeper + 1);
    EXPECT_EQ(data.front(), 2);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace gradwire::test
