#include "gradwire/schedule/program_set.h"

#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

double largest(const char* algorithm, int ranks) {
  const CollectiveSpec spec{.collective = Collective::all_reduce};
  return largest_message(
      ProgramSet(make_schedule(spec, algorithm, Topology::uniform(ranks, Link{})).value()));
}

TEST(LargestMessage, IsAPartOfAllChunks) {
  EXPECT_DOUBLE_EQ(largest("ring", 5), 1.0 / 5);
  EXPECT_DOUBLE_EQ(largest("direct", 5), 1.0 / 5);
  EXPECT_DOUBLE_EQ(largest("halving_doubling", 8), 1.0 / 2);
  EXPECT_DOUBLE_EQ(largest("tree", 5), 1);
}

}  // namespace
}  // namespace gradwire
