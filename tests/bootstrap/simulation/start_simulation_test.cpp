#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "gradwire/base/log.h"
#include "tests/base/seeds.h"
#include "tests/bootstrap/simulation/start_scenario.h"

namespace gradwire::test {
namespace {

/// The seeds of a day, in shards. GRADWIRE_SIMULATIONS: seeds per shard; GRADWIRE_SEED: run only
/// this seed.
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
  const std::uint64_t count =
      from_environment("GRADWIRE_SIMULATIONS", usual_or(kPerShard, kManyPerShard));
  const std::uint64_t only = from_environment("GRADWIRE_SEED", 0);
  const std::uint64_t first =
      only != 0 ? only
                : (today() * kShards + static_cast<std::uint64_t>(GetParam())) * 1'000'000 + 1;
  const std::uint64_t last = only != 0 ? only : first + count - 1;
  std::map<std::string_view, int> happened, joined, divided;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
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
    EXPECT_TRUE(times > 0 || only != 0 || count < kManyPerShard) << fault << " never happened";
  }
  EXPECT_TRUE(happened.size() == kStartFaults || only != 0 || count < kManyPerShard);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StartSimulation, testing::Range(0, kShards));

}  // namespace
}  // namespace gradwire::test
