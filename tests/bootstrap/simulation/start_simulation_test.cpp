#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "gradwire/base/log.h"
#include "tests/bootstrap/simulation/start_scenario.h"
#include "tests/support/seeds.h"

namespace gradwire::test {
namespace {

constexpr int kShards = 4;
constexpr std::uint64_t kPerShard = 300, kManyPerShard = 1'000;

class StartSimulation : public testing::TestWithParam<int> {
 protected:
  // Half of the starts fail, and each says so.
  void SetUp() override {
    set_log_sink([](std::string_view) {});
  }
  void TearDown() override { set_log_sink(nullptr); }
};

TEST_P(StartSimulation, AllRanksJoinAlikeOrEachSaysWhyNot) {
  const SeedRange seeds = seeds_of_shard(GetParam(), kShards, kPerShard, kManyPerShard);
  std::map<std::string_view, int> happened, joined, divided;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const StartScenario scenario = draw_start(seed);
    const StartOutcome outcome = simulate_start(scenario);
    ASSERT_FALSE(outcome.violation) << *outcome.violation << "replay with GRADWIRE_SEED=" << seed;
    happened[name_of(scenario.fault)] += outcome.happened ? 1 : 0;
    joined[name_of(scenario.fault)] += outcome.joined ? 1 : 0;
    divided[name_of(scenario.fault)] += outcome.divided ? 1 : 0;
  }
  for (const auto& [fault, times] : happened) {
    RecordProperty(std::string(fault), times);
    RecordProperty(std::string(fault) + "_joined", joined[fault]);
    RecordProperty(std::string(fault) + "_divided", divided[fault]);
    EXPECT_TRUE(times > 0 || seeds.count < kManyPerShard) << fault << " never happened";
  }
  EXPECT_TRUE(happened.size() == kStartFaults || seeds.count < kManyPerShard);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StartSimulation, testing::Range(0, kShards));

}  // namespace
}  // namespace gradwire::test
