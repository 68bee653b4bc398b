#include "gradwire/federated/secure/secure_policy.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/federated/secure/neighbour_graph.h"
#include "tests/federated/secure_trial.h"

namespace gradwire::federated {
namespace {

using testing::HasSubstr;

Digest seed_of(std::uint64_t number) {
  Digest seed{};
  store_little_endian(seed.data(), number);
  return seed;
}

std::vector<ClientId> clients_up_to(int count) {
  std::vector<ClientId> clients(static_cast<std::size_t>(count));
  std::iota(clients.begin(), clients.end(), 10);
  return clients;
}

TEST(NeighbourGraph, IsRegularAndSymmetric) {
  for (const int count : {1, 2, 3, 4, 9, 10}) {
    for (int neighbours = 1; neighbours <= 10; ++neighbours) {
      const NeighbourGraph graph(clients_up_to(count), neighbours, seed_of(3));
      EXPECT_EQ(graph.degree(), std::min(count - 1, neighbours + neighbours % 2));
      for (const ClientId client : graph.members()) {
        const auto found = graph.neighbours_of(client);
        EXPECT_EQ(static_cast<int>(found.size()), graph.degree());
        EXPECT_TRUE(std::ranges::is_sorted(found));
        EXPECT_EQ(std::set(found.begin(), found.end()).size(), found.size());
        for (const ClientId other : found) {
          EXPECT_NE(other, client);
          const auto back = graph.neighbours_of(other);
          EXPECT_TRUE(std::ranges::binary_search(back, client));
        }
      }
    }
  }
}

TEST(NeighbourGraph, FollowsFromTheSeed) {
  const auto of_ten = [](std::uint64_t seed) {
    return NeighbourGraph(clients_up_to(100), 10, seed_of(seed)).neighbours_of(10);
  };
  EXPECT_EQ(of_ten(1), of_ten(1));
  EXPECT_NE(of_ten(1), of_ten(2));
  std::map<ClientId, int> times;  // 10 of 99 in each of 1000 graphs: 101 +- 9.5.
  for (std::uint64_t seed = 1; seed <= 1000; ++seed)
    for (const ClientId client : of_ten(seed)) ++times[client];
  for (const auto& [client, count] : times) {
    EXPECT_GT(count, 101 - 48) << client;
    EXPECT_LT(count, 101 + 48) << client;
  }
  EXPECT_EQ(times.size(), 99);
}

TEST(SecurePolicy, HasTheLeastThresholds) {
  EXPECT_EQ(least_threshold(126, false), 64);
  EXPECT_EQ(least_threshold(29, false), 15);
  EXPECT_EQ(least_threshold(29, true), 20);
  EXPECT_EQ(least_threshold(30, true), 21);
  EXPECT_FALSE(check({.neighbours = 30, .threshold = 15}).has_value());
  EXPECT_TRUE(check({.neighbours = 30, .threshold = 16}).has_value());
  EXPECT_FALSE(check({.neighbours = 30, .threshold = 20, .active = true}).has_value());
  EXPECT_FALSE(check({.neighbours = 30, .threshold = 31}).has_value());
  EXPECT_FALSE(check({.neighbours = 0, .threshold = 1}).has_value());
}

TEST(SecurePolicy, IsCheckedWithTheNeighboursThatEachClientHas) {
  const auto error = [](int clients, const SecurePolicy& policy) {
    const Status status = check_among(clients, policy);
    return status ? "no error" : status.error().message;
  };
  EXPECT_EQ(error(4, {.neighbours = 3, .threshold = 2}), "no error") << "all others";
  EXPECT_THAT(error(5, {.neighbours = 3, .threshold = 2}),
              HasSubstr("3 neighbours is 4 among 5 clients: a threshold of 2 with 4 neighbours: it "
                        "must be 3 to 4"));
  EXPECT_THAT(error(10, {.neighbours = 64, .threshold = 33}),
              HasSubstr("64 neighbours is 9 among 10 clients: a threshold of 33 with 9"));
  EXPECT_EQ(error(65, {.neighbours = 64, .threshold = 33}), "no error");
  EXPECT_THAT(error(1, {.neighbours = 1, .threshold = 1}), HasSubstr("must be 1 to 0"));
}

/// By counting: clients that vanish are drawn at random, and neighbours by the graph.
/// Twice as many would not fit into an int.
TEST(SecurePolicy, HasAtMostSoManyNeighbours) {
  EXPECT_TRUE(check(SecurePolicy{4096, 4096, true}));
  EXPECT_FALSE(check(SecurePolicy{4097, 4097, true}));
  const int most = std::numeric_limits<int>::max();
  for (const int threshold : {1, 1000, most})
    EXPECT_EQ(check(SecurePolicy{most, threshold, true}).error().kind, ErrorKind::invalid_argument);
}

TEST(SecurePolicy, BoundsWhatSimulationFinds) {
  const CohortAssumptions cohort{.clients = 40, .dropping = 0.3, .colluding = 0.2};
  const SecurePolicy policy{.neighbours = 16, .threshold = 9};
  const SecureRisks risks = risks_of(policy, cohort);
  const auto members = clients_up_to(40);
  int abandoned = 0, below = 0;
  constexpr int kTrials = 4000;
  for (std::uint64_t seed = 1; seed <= kTrials; ++seed) {
    const NeighbourGraph graph(members, policy.neighbours, seed_of(seed));
    const auto gone = test::random_part(members, 12, seed);
    const auto is_left = [&](ClientId client) {
      return std::ranges::find(gone, client) == gone.end();
    };
    const auto lacks = [&](ClientId client) {
      return std::ranges::count_if(graph.neighbours_of(client), is_left) < policy.threshold;
    };
    abandoned += std::ranges::any_of(members, lacks);
    for (const ClientId client : members) below += is_left(client) && lacks(client);
  }
  // The others of a client that stays are 39 with 12 gone, which the formula assumes of all 40.
  const double expected = static_cast<double>(below) / kTrials * 40 / 28;
  EXPECT_NEAR(expected, risks.abandoned, 0.1 * risks.abandoned);
  EXPECT_LE(static_cast<double>(abandoned) / kTrials, risks.abandoned);
  EXPECT_GT(abandoned, 0);
}

TEST(SecurePolicy, SumsTailsExactly) {
  // 5 clients, all neighbours, threshold 3, two vanish: of 4 others 2 or 1 are gone. By hand, a
  // neighbourhood of 4 of 4 with 2 gone has 2 left, always.
  const SecurePolicy all{.neighbours = 4, .threshold = 3};
  EXPECT_DOUBLE_EQ(risks_of(all, {.clients = 5, .dropping = 0.4, .colluding = 0}).abandoned, 5);
  EXPECT_EQ(risks_of(all, {.clients = 5, .dropping = 0.2, .colluding = 0}).abandoned, 0);
  // 2 of 6 others are drawn, 3 of which are gone: both in 3 of 15 draws.
  const SecurePolicy two{.neighbours = 2, .threshold = 1};
  EXPECT_NEAR(risks_of(two, {.clients = 7, .dropping = 3.0 / 7, .colluding = 0}).abandoned,
              7 * 3.0 / 15, 1e-12);
}

TEST(SecurePolicy, IsTheSmallestThatKeepsItsPromises) {
  for (const int clients : {30, 64, 256, 1000}) {
    for (const double dropping : {0.1, 1.0 / 6, 0.33}) {
      for (const bool active : {false, true}) {
        if (active && dropping > 0.3) continue;
        const CohortAssumptions cohort{
            .clients = clients, .dropping = dropping, .colluding = 0.05, .active = active};
        const auto found = find_policy(cohort);
        ASSERT_TRUE(found.has_value()) << found.error().message;
        EXPECT_TRUE(check(*found).has_value());
        const SecureRisks risks = risks_of(*found, cohort);
        EXPECT_LT(risks.abandoned, kMostAbandoned);
        EXPECT_LT(risks.exposed, most_exposed(active));
        const int fewer = found->neighbours - 2;
        const SecureRisks smaller = risks_of(
            {.neighbours = fewer, .threshold = least_threshold(fewer, active), .active = active},
            cohort);
        EXPECT_TRUE(smaller.abandoned >= kMostAbandoned || smaller.exposed >= most_exposed(active));
      }
    }
  }
  EXPECT_NEAR(find_policy({.clients = 256, .dropping = 0.33}).value().neighbours, 125, 3);
}

/// The study's proposal, and why it is wrong.
TEST(SecurePolicy, TwoThirdsOfFewNeighboursLoseEachRoundInWhichAThirdVanishes) {
  const SecurePolicy proposed{.neighbours = 64, .threshold = 43};
  EXPECT_GT(risks_of(proposed, {.clients = 256, .dropping = 1.0 / 3}).abandoned, 50);
}

TEST(SecurePolicy, SaysForWhichCohortsThereIsOne) {
  const auto none = find_policy({.clients = 30, .dropping = 0.32, .active = true});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().kind, ErrorKind::invalid_argument);
  EXPECT_NE(none.error().message.find("with 30 clients at most 0.300 may vanish"),
            std::string::npos)
      << none.error().message;
  EXPECT_NE(none.error().message.find("clients are enough"), std::string::npos);
  EXPECT_TRUE(find_policy({.clients = 30, .dropping = 0.3, .active = true}).has_value());
  EXPECT_FALSE(find_policy({.clients = 1000, .dropping = 0.5}).has_value());
  EXPECT_FALSE(find_policy({.clients = 0, .dropping = 0.1}).has_value());
  EXPECT_FALSE(find_policy({.clients = 100, .dropping = 1.1}).has_value());
  EXPECT_FALSE(find_policy({.clients = 100'000, .dropping = 0.1}).has_value());
}

TEST(SecurePolicy, MaskedUpdatesHaveAtLeastThreeContributors) {
  const SecurePolicy two{.neighbours = 1, .threshold = 1}, three{.neighbours = 2, .threshold = 2};
  EXPECT_TRUE(check_contributors(two, 1));
  EXPECT_TRUE(check_contributors(three, 0.5));
  const Status refused = check_contributors(two, 0.5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("update.mask is 0.5"));
}

/// The table of docs/security.md.
TEST(SecurePolicy, HasTheFiguresOfTheDocumentation) {
  struct Row {
    int clients;
    double dropping;
    bool active;
    int neighbours, threshold;
  };
  const Row rows[] = {
      {30, 0.1, false, 12, 7},    {30, 0.33, false, 26, 14},     {64, 0.1, false, 24, 13},
      {64, 0.33, false, 48, 25},  {256, 0.1, false, 34, 18},     {256, 0.33, false, 124, 63},
      {1000, 0.1, false, 36, 19}, {1000, 0.33, false, 208, 105}, {30, 0.1, true, 12, 9},
      {64, 0.1, true, 24, 17},    {256, 0.1, true, 54, 37},      {1000, 0.1, true, 108, 73}};
  for (const Row& row : rows) {
    const SecurePolicy found =
        find_policy({.clients = row.clients, .dropping = row.dropping, .active = row.active})
            .value();
    EXPECT_EQ(found.neighbours, row.neighbours) << row.clients << " clients, " << row.dropping;
    EXPECT_EQ(found.threshold, row.threshold) << row.clients << " clients, " << row.dropping;
  }
}

}  // namespace
}  // namespace gradwire::federated
