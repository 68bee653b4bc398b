#include "gradwire/pipeline/simulated_network.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

/// Ends all messages in flight: their ids and times.
std::vector<std::pair<std::size_t, double>> ends_of(SimulatedNetwork& network) {
  std::vector<std::pair<std::size_t, double>> ends;
  while (network.next_end() < SimulatedNetwork::kNever) {
    const double at = network.next_end();
    ends.emplace_back(network.end_next(), at);
  }
  return ends;
}

TEST(SimulatedNetwork, AConnectionSendsOneMessageAfterTheOther) {
  SimulatedNetwork network(true);
  network.send({1, 0, 1, 0, 3}, 0);
  network.send({2, 0, 1, 0, 2}, 1);
  EXPECT_THAT(ends_of(network), ElementsAre(Pair(1, 3), Pair(2, 5)));
}

TEST(SimulatedNetwork, UrgentMessagesInterruptOthers) {
  SimulatedNetwork network(true);
  network.send({1, 0, 1, 0, 3}, 0);
  network.send({2, 0, 1, 1, 2}, 1);
  network.send({3, 0, 1, 1, 1}, 2);
  EXPECT_THAT(ends_of(network), ElementsAre(Pair(2, 3), Pair(3, 4), Pair(1, 6)));
}

TEST(SimulatedNetwork, ConnectionsShareThePortsOfTheirRanks) {
  SimulatedNetwork sends(true);
  sends.send({1, 0, 1, 0, 2}, 0);
  sends.send({2, 0, 2, 0, 1}, 0);
  EXPECT_THAT(ends_of(sends), ElementsAre(Pair(2, 2), Pair(1, 3)));
  SimulatedNetwork receives(true);
  receives.send({1, 1, 0, 0, 2}, 0);
  receives.send({2, 2, 0, 0, 2}, 2);
  EXPECT_THAT(ends_of(receives), ElementsAre(Pair(1, 2), Pair(2, 4)));
  SimulatedNetwork both_directions(true);
  both_directions.send({1, 0, 1, 0, 2}, 0);
  both_directions.send({2, 1, 0, 0, 2}, 0);
  EXPECT_THAT(ends_of(both_directions), ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST(SimulatedNetwork, LinksOfTheirOwnShareNothing) {
  SimulatedNetwork network(false);
  network.send({1, 0, 1, 0, 2}, 0);
  network.send({2, 0, 2, 0, 2}, 0);
  EXPECT_THAT(ends_of(network), ElementsAre(Pair(1, 2), Pair(2, 2)));
}

}  // namespace
}  // namespace gradwire::pipeline
