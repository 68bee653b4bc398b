#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/base/seeds.h"
#include "tests/engine/simulation/simulated_run.h"

namespace gradwire::test {
namespace {

/// The seeds of a day, in shards. GRADWIRE_SIMULATIONS: seeds per shard; GRADWIRE_SEED: run only
/// this seed.
constexpr int kShards = 4;
constexpr std::uint64_t kPerShard = 5'000, kManyPerShard = 26'000;

class FaultSimulation : public testing::TestWithParam<int> {};

TEST_P(FaultSimulation, NothingHangsAndNothingIsWrong) {
  const std::uint64_t count =
      from_environment("GRADWIRE_SIMULATIONS", usual_or(kPerShard, kManyPerShard));
  const std::uint64_t only = from_environment("GRADWIRE_SEED", 0);
  const std::uint64_t first =
      only != 0 ? only
                : (today() * kShards + static_cast<std::uint64_t>(GetParam())) * 1'000'000 + 1;
  const std::uint64_t last = only != 0 ? only : first + count - 1;
  std::map<std::string_view, int> drawn;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    ++drawn[name_of(scenario.fault)];
    const std::optional<std::string> violation = violation_of(scenario);
    ASSERT_FALSE(violation) << *violation << "replay with GRADWIRE_SEED=" << seed;
  }
  for (const auto& [fault, times] : drawn) RecordProperty(std::string(fault), times);
  if (count >= 1000 && only == 0) {
    EXPECT_EQ(drawn.size(), 11u) << "some faults were never drawn";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FaultSimulation, testing::Range(0, kShards));

}  // namespace
}  // namespace gradwire::test
