#include "gradwire/schedule/catalogue.h"

#include <set>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::schedule {
namespace {

const topology::Topology kFour = topology::Topology::uniform(4);

TEST(Catalogue, HasAnAlgorithmForEveryCollective) {
  for (Collective collective : all_collectives()) {
    EXPECT_FALSE(algorithm_names(collective).empty()) << name_of(collective);
    EXPECT_EQ(collective_named(name_of(collective)), collective);
  }
  EXPECT_EQ(collective_named("allreduce"), std::nullopt);
  EXPECT_THAT(algorithm_names(Collective::all_reduce),
              testing::ElementsAre("ring", "direct", "tree", "recursive_doubling", "exchange",
                                   "halving_doubling", "double_tree", "star", "hierarchical",
                                   "leaders", "uneven", "spanning_trees"));
}

TEST(Catalogue, NamesDifferInWhatFingerprintsHoldOfThem) {
  std::set<std::tuple<Collective, std::string_view>> seen;
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    EXPECT_TRUE(seen.emplace(algorithm.collective, algorithm.name.substr(0, 16)).second);
  }
}

TEST(Catalogue, MakesTheRequestedSchedule) {
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    const CollectiveSpec spec{algorithm.collective, 2, 1};
    const auto schedule = make_schedule(spec, algorithm.name, kFour);
    ASSERT_TRUE(schedule) << schedule.error().message;
    EXPECT_EQ(schedule->name, algorithm.name);
    EXPECT_EQ(schedule->spec.collective, algorithm.collective);
    EXPECT_EQ(schedule->ranks, 4);
  }
  const auto broadcast = make_schedule({Collective::broadcast, 3}, "tree", kFour);
  EXPECT_EQ(broadcast.value().spec.root, 3);
}

TEST(Catalogue, SaysWhichAlgorithmsThereAre) {
  const auto wrong = make_schedule({Collective::all_reduce}, "rign", kFour);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(wrong.error().message,
            "unknown all_reduce algorithm \"rign\" (did you mean \"ring\"?); known: ring, direct, "
            "tree, recursive_doubling, exchange, halving_doubling, double_tree, star, "
            "hierarchical, leaders, uneven, spanning_trees");
  EXPECT_FALSE(make_schedule({Collective::barrier}, "ring", kFour));
}

TEST(Catalogue, KnowsWhichAlgorithmsATopologyIsFor) {
  const auto suiting = [](const topology::Topology& topology) {
    std::set<std::string_view> names;
    for (const Algorithm& algorithm : algorithm_catalogue()) {
      if (algorithm.suits != nullptr && algorithm.suits(topology)) names.insert(algorithm.name);
    }
    return names;
  };
  using Names = std::set<std::string_view>;
  EXPECT_EQ(suiting(kFour), Names{});
  EXPECT_EQ(suiting(topology::Topology({topology::Host{}, topology::Host{}}, {0, 0, 1})),
            (Names{"hierarchical", "leaders", "host_tree"}));
  EXPECT_EQ(suiting(topology::Topology({topology::Host{}}, {0, 0, 0})), Names{});
  EXPECT_EQ(
      suiting(topology::Topology({topology::Link{}, topology::Link{.bytes_per_second = 1e7}})),
      (Names{"spanning_trees", "uneven"}));
  topology::Topology measured = kFour;
  measured.set_measured(1, 2, {.bytes_per_second = 1e7});
  EXPECT_EQ(suiting(measured), (Names{"spanning_trees", "uneven"}));
}

TEST(Catalogue, RefusesRanksOutsideTheJob) {
  for (Rank rank : {-1, 4}) {
    EXPECT_FALSE(make_schedule({Collective::broadcast, rank}, "tree", kFour));
    EXPECT_FALSE(make_schedule({Collective::point_to_point, 0, rank}, "point_to_point", kFour));
  }
  EXPECT_EQ(make_schedule({Collective::broadcast, 4}, "tree", kFour).error().message,
            "the root is rank 4, but there are only ranks 0 to 3");
}

}  // namespace
}  // namespace gradwire::schedule
