#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/engine/simulation/simulated_run.h"
#include "tests/support/seeds.h"

namespace gradwire::test {
namespace {

constexpr int kShards = 4;
constexpr std::uint64_t kPerShard = 5'000, kManyPerShard = 26'000;

class FaultSimulation : public testing::TestWithParam<int> {};

TEST_P(FaultSimulation, NothingHangsAndNothingIsWrong) {
  const SeedRange seeds = seeds_of_shard(GetParam(), kShards, kPerShard, kManyPerShard);
  std::map<std::string_view, int> drawn;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    ++drawn[name_of(scenario.fault)];
    const std::optional<std::string> violation = violation_of(scenario);
    ASSERT_FALSE(violation) << *violation << "replay with GRADWIRE_SEED=" << seed;
  }
  for (const auto& [fault, times] : drawn) RecordProperty(std::string(fault), times);
  if (seeds.count >= 1000) {
    EXPECT_EQ(drawn.size(), 11u) << "some faults were never drawn";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FaultSimulation, testing::Range(0, kShards));

}  // namespace
}  // namespace gradwire::test
