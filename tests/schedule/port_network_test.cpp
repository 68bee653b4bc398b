#include "gradwire/schedule/cost/port_network.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/cost/cost.h"
#include "tests/schedule/textbook_links.h"

namespace gradwire::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

/// Ends all messages in flight: their ids and times.
std::vector<std::pair<std::size_t, double>> ends_of(PortNetwork& network) {
  std::vector<std::pair<std::size_t, double>> ends;
  while (network.next_end() < PortNetwork::kNever) {
    const double at = network.next_end();
    ends.emplace_back(network.end_next(), at);
  }
  return ends;
}

TEST(PortNetwork, AConnectionSendsOneMessageAfterTheOther) {
  PortNetwork network(true);
  network.start({1, 0, 1, 0, 3}, 0);
  network.start({2, 0, 1, 0, 2}, 1);
  EXPECT_THAT(ends_of(network), ElementsAre(Pair(1, 3), Pair(2, 5)));
}

TEST(PortNetwork, UrgentMessagesInterruptOthers) {
  PortNetwork network(true);
  network.start({1, 0, 1, 0, 3}, 0);
  network.start({2, 0, 1, 1, 2}, 1);
  network.start({3, 0, 1, 1, 1}, 2);
  EXPECT_THAT(ends_of(network), ElementsAre(Pair(2, 3), Pair(3, 4), Pair(1, 6)));
}

TEST(PortNetwork, ConnectionsShareThePortsOfTheirRanks) {
  PortNetwork sends(true);
  sends.start({1, 0, 1, 0, 2}, 0);
  sends.start({2, 0, 2, 0, 1}, 0);
  EXPECT_THAT(ends_of(sends), ElementsAre(Pair(2, 2), Pair(1, 3)));
  PortNetwork receives(true);
  receives.start({1, 1, 0, 0, 2}, 0);
  receives.start({2, 2, 0, 0, 2}, 2);
  EXPECT_THAT(ends_of(receives), ElementsAre(Pair(1, 2), Pair(2, 4)));
  PortNetwork both_directions(true);
  both_directions.start({1, 0, 1, 0, 2}, 0);
  both_directions.start({2, 1, 0, 0, 2}, 0);
  EXPECT_THAT(ends_of(both_directions), ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST(PortNetwork, WhatTheHighestPriorityCannotUseIsForTheNext) {
  PortNetwork network;
  network.start({.id = 1, .to = 1, .priority = 1, .seconds = 4, .port = 0.25}, 0);
  network.start({.id = 2, .to = 1, .seconds = 3, .port = 1}, 0);
  EXPECT_THAT(ends_of(network), ElementsAre(Pair(1, 4), Pair(2, 4)));
  EXPECT_DOUBLE_EQ(network.busy(), 4);
}

TEST(PortNetwork, LinksOfTheirOwnShareNothing) {
  PortNetwork network(false);
  network.start({1, 0, 1, 0, 2}, 0);
  network.start({2, 0, 2, 0, 2}, 0);
  EXPECT_THAT(ends_of(network), ElementsAre(Pair(1, 2), Pair(2, 2)));
}

/// Messages of the same size that all start at once, and what LinkModel makes of them.
struct Messages {
  Collective collective;
  const char* algorithm;
  std::vector<std::pair<Rank, Rank>> pairs;
};

class PortNetworkAndLinkModel : public ::testing::TestWithParam<Messages> {};

TEST_P(PortNetworkAndLinkModel, AgreeOnMessagesThatOverlap) {
  const auto& [collective, algorithm, pairs] = GetParam();
  constexpr std::size_t kBytes = 32u << 20;  // Large messages: latencies do not count.
  constexpr int kRanks = 4;
  const Schedule schedule = value_or_throw(
      make_schedule({.collective = collective, .target = 1}, algorithm, test::links(kRanks)));
  const std::size_t elements =
      kBytes / 4 * (has_parts(collective) ? kRanks : static_cast<std::size_t>(1));
  const Estimate modelled = ScheduleCost(schedule).estimate(
      test::links(kRanks), ChunkLayout(schedule.chunks, elements, 4), {});
  PortNetwork network;
  for (const auto& [from, to] : pairs) {
    network.start({.from = from, .to = to, .seconds = test::wire(kBytes)}, 0);
  }
  const double total = static_cast<double>(modelled.total.count());
  EXPECT_NEAR(ends_of(network).back().second, total, 0.02 * total);
}

INSTANTIATE_TEST_SUITE_P(
    By, PortNetworkAndLinkModel,
    ::testing::Values(Messages{Collective::point_to_point, "point_to_point", {{0, 1}}},
                      Messages{Collective::scatter, "direct", {{0, 1}, {0, 2}, {0, 3}}},
                      Messages{Collective::gather, "direct", {{1, 0}, {2, 0}, {3, 0}}},
                      Messages{Collective::all_to_all,
                               "direct",
                               {{0, 1},
                                {0, 2},
                                {0, 3},
                                {1, 0},
                                {1, 2},
                                {1, 3},
                                {2, 0},
                                {2, 1},
                                {2, 3},
                                {3, 0},
                                {3, 1},
                                {3, 2}}}),
    [](const auto& given) { return std::string(name_of(given.param.collective)); });

}  // namespace
}  // namespace gradwire::schedule
