#include "gradwire/schedule/verify/verifier.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/describe.h"
#include "tests/schedule/printing.h"

namespace gradwire::schedule {
namespace {

/// One spec for each sensible root and target, if the collective has them.
std::vector<CollectiveSpec> specs_of(Collective collective, int ranks) {
  const Rank middle = ranks / 2;
  const Rank last = ranks - 1;
  switch (collective) {
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
      return {{collective, 0}, {collective, middle}, {collective, last}};
    case Collective::point_to_point:
      return {{collective, 0, last}, {collective, last, middle}};
    default:
      return {{collective}};
  }
}

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, IsRightForAnyNumberOfRanks) {
  const Algorithm& algorithm = GetParam();
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (const CollectiveSpec& spec : specs_of(algorithm.collective, ranks)) {
      const Schedule schedule = algorithm.make(topology::Topology::uniform(ranks), spec);
      const auto finding = find_fault(schedule);
      ASSERT_FALSE(finding) << finding->message;
      EXPECT_EQ(schedule.name, algorithm.name);
      EXPECT_EQ(schedule.ranks, ranks);
    }
  }
}

TEST_P(EveryAlgorithm, IsRightBeyondSixtyFourRanks) {
  for (int ranks : {65, 96}) {
    const Schedule schedule =
        GetParam().make(topology::Topology::uniform(ranks), {GetParam().collective, ranks - 1, 0});
    const auto finding = find_fault(schedule);
    ASSERT_FALSE(finding) << finding->message;
  }
}

TEST_P(EveryAlgorithm, IsRightForHundredsOfRanks) {
  constexpr int kRanks = 300;
  const Schedule schedule =
      GetParam().make(topology::Topology::uniform(kRanks), {GetParam().collective, 150, 0});
  // Algorithms in which all ranks send to all would take minutes.
  const std::size_t ops = schedule.program(0).ops.size() + schedule.program(150).ops.size();
  if (ops > 100) {
    EXPECT_GE(ops, static_cast<std::size_t>(kRanks));
    return;
  }
  const auto finding = find_fault(schedule);
  ASSERT_FALSE(finding) << finding->message;
}

/// The properties of a topology that affect schedules: placement of ranks, and fast ports.
topology::Topology random_hosts(Random& random) {
  std::vector<topology::Host> hosts(random.between(1, 5));
  std::vector<int> host_of;
  for (int number = 0; number < static_cast<int>(hosts.size()); ++number) {
    hosts[static_cast<std::size_t>(number)].rails = {
        {.bytes_per_second = 1e8 * static_cast<double>(random.between(1, 10))}};
    for (auto ranks = random.between(1, 4); ranks > 0; --ranks) host_of.push_back(number);
  }
  for (std::size_t i = host_of.size() - 1; i > 0; --i) {
    std::swap(host_of[i], host_of[random.below(i + 1)]);
  }
  topology::Topology topology(hosts, host_of);
  for (int from = 0; from < topology.hosts(); ++from) {
    for (int to = 0; to < topology.hosts(); ++to) {
      if (from == to || !random.one_in(4)) continue;
      topology.set_measured(from, to,
                            {.bytes_per_second = 1e7 * static_cast<double>(random.between(1, 50))});
    }
  }
  return topology;
}

TEST_P(EveryAlgorithm, IsRightWhoeverIsWhereAndHoweverFast) {
  Random random(23);
  for (int repetition = 0; repetition < 60; ++repetition) {
    const topology::Topology topology = random_hosts(random);
    const auto any_rank = [&] {
      return static_cast<Rank>(random.below(static_cast<std::uint64_t>(topology.ranks())));
    };
    const Schedule schedule =
        GetParam().make(topology, {GetParam().collective, any_rank(), any_rank()});
    const auto finding = find_fault(schedule);
    ASSERT_FALSE(finding) << repetition << ": " << finding->message;
    EXPECT_EQ(schedule.ranks, topology.ranks());
  }
}

/// Programs of different ranks are made on different machines, and must belong to the same
/// schedule.
TEST_P(EveryAlgorithm, MakesTheSameScheduleOfEqualTopologies) {
  Random random(29);
  for (int repetition = 0; repetition < 20; ++repetition) {
    const topology::Topology topology = random_hosts(random);
    const CollectiveSpec spec{GetParam().collective};
    const Schedule once = GetParam().make(topology, spec);
    const Schedule again = GetParam().make(topology::Topology(topology), spec);
    ASSERT_EQ(once.chunks, again.chunks);
    for (Rank rank = 0; rank < topology.ranks(); ++rank) {
      const Program a = once.program(rank);
      const Program b = again.program(rank);
      ASSERT_EQ(a.ops.size(), b.ops.size());
      for (std::size_t i = 0; i < a.ops.size(); ++i) {
        EXPECT_EQ(describe(a.ops[i]), describe(b.ops[i]));
      }
    }
  }
}

std::string test_name(const testing::TestParamInfo<Algorithm>& tested) {
  return std::string(name_of(tested.param.collective)) + "_" + std::string(tested.param.name);
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EveryAlgorithm,
                         testing::ValuesIn(algorithm_catalogue().begin(),
                                           algorithm_catalogue().end()),
                         test_name);

}  // namespace
}  // namespace gradwire::schedule
