#include "gradwire/schedule/verifier.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"
#include "tests/schedule/printing.h"

namespace gradwire {
namespace {

/// One for each sensible root and target, where the collective has them.
std::vector<CollectiveSpec> specs_of(Collective collective, int ranks) {
  const Rank middle = ranks / 2;
  const Rank last = ranks - 1;
  switch (collective) {
    case Collective::broadcast:
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
      const Schedule schedule = algorithm.make(Topology::uniform(ranks), spec);
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
        GetParam().make(Topology::uniform(ranks), {GetParam().collective, ranks - 1, 0});
    const auto finding = find_fault(schedule);
    ASSERT_FALSE(finding) << finding->message;
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
}  // namespace gradwire
