#include "gradwire/federated/round.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/clock.h"

namespace gradwire::federated {
namespace {

using testing::ElementsAre;

constexpr UpdateShape kShape{.elements = 3, .metrics = 1};

Time at(double time) {
  return Time{} + duration_of(time);
}

Contribution update(const Order::Upload& upload, std::uint64_t value) {
  Contribution one{ModularVector(3, upload.bits), ModularVector(1, 64)};
  for (std::size_t i = 0; i < 3; ++i)
    one[0].set(i, (value + i) * static_cast<std::uint64_t>(upload.weight));
  one[1].set(0, 1);
  return one;
}

template <class Kind>
std::vector<ClientId> told(const std::vector<Order>& orders) {
  std::vector<ClientId> clients;
  for (const Order& order : orders)
    if (std::holds_alternative<Kind>(order.what)) clients.push_back(order.client);
  return clients;
}

/// A round of clients 0 .. n - 1, which have 10 (client + 1) samples each, after the draw.
struct Asked {
  explicit Asked(const RoundPolicy& policy, int clients, std::int64_t number = 1)
      : round(policy, kShape, number, 5) {
    for (ClientId one = 0; one < clients; ++one)
      EXPECT_TRUE(round.on_check_in({.client = one, .samples = 10 * (one + 1)}, at(0)));
    if (round.phase() == Phase::selecting) round.on_time(round.deadline());
    orders = round.take_orders();
    asked = told<Order::Train>(orders);
  }
  std::map<ClientId, Order::Upload> uploads() {
    std::map<ClientId, Order::Upload> uploads;
    orders = round.take_orders();
    for (const Order& order : orders)
      if (const auto* upload = std::get_if<Order::Upload>(&order.what))
        uploads[order.client] = *upload;
    return uploads;
  }

  Round round;
  std::vector<Order> orders;
  std::vector<ClientId> asked;
};

const RoundPolicy kFourOfSix{.ask = 6, .use = 4, .least = 2, .pool = 10};

TEST(Round, UsesTheFirstThatAreReady) {
  Asked job(kFourOfSix, 10);
  ASSERT_EQ(job.asked.size(), 6);
  EXPECT_EQ(told<Order::Again>(job.orders).size(), 4);
  for (const int i : {5, 0, 3, 2}) EXPECT_TRUE(job.round.on_ready(job.asked[i], at(1)));
  EXPECT_EQ(job.round.phase(), Phase::uploading);
  const auto uploads = job.uploads();
  EXPECT_EQ(told<Order::Stop>(job.orders), (std::vector{job.asked[1], job.asked[4]}));
  ASSERT_EQ(uploads.size(), 4);
  std::uint64_t expected = 0, weights = 0;
  for (const auto& [client, upload] : uploads) {
    EXPECT_EQ(upload.weight, 10 * (client + 1));
    EXPECT_TRUE(job.round.on_update(client, update(upload, 7), at(2)));
    expected += 7 * static_cast<std::uint64_t>(upload.weight);
    weights += static_cast<std::uint64_t>(upload.weight);
  }
  EXPECT_EQ(job.round.phase(), Phase::committed);
  EXPECT_EQ(job.round.sum()[0][0], expected);
  EXPECT_EQ(job.round.sum()[1][0], 4);
  EXPECT_EQ(static_cast<std::uint64_t>(job.round.weight()), weights);
  const RoundRecord& record = job.round.record();
  EXPECT_EQ(record.asked, 6);
  EXPECT_EQ(record.used, 4);
  EXPECT_EQ(record.stopped, 2);
  EXPECT_EQ(record.dropped, 0);
  EXPECT_EQ(record.ended, at(2));
}

TEST(Round, HasBitsForTheSumOfTheWeights) {
  EXPECT_EQ(sum_bits(8, 1), 8);
  EXPECT_EQ(sum_bits(8, 2), 9);
  EXPECT_EQ(sum_bits(8, 256), 16);
  EXPECT_EQ(sum_bits(8, 257), 17);
  RoundPolicy policy = kFourOfSix;
  policy.update_bits = 8;
  Asked job(policy, 10);
  std::int64_t weights = 0;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(job.round.on_ready(job.asked[i], at(1)));
    weights += 10 * (job.asked[i] + 1);
  }
  for (const auto& [client, upload] : job.uploads()) EXPECT_EQ(upload.bits, sum_bits(8, weights));
}

TEST(Round, EndsWithThoseThatTheWindowHasGiven) {
  Asked job(kFourOfSix, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(job.round.on_ready(job.asked[i], at(1)));
  EXPECT_EQ(job.round.phase(), Phase::configuring);
  job.round.on_time(job.round.deadline());
  EXPECT_EQ(job.round.phase(), Phase::uploading);
  const auto uploads = job.uploads();
  EXPECT_EQ(uploads.size(), 3);
  // One of them does not come.
  int sent = 0;
  for (const auto& [client, upload] : uploads)
    if (sent++ < 2) {
      EXPECT_TRUE(job.round.on_update(client, update(upload, 1), at(70)));
    }
  EXPECT_EQ(job.round.phase(), Phase::uploading);
  job.round.on_time(job.round.deadline());
  EXPECT_EQ(job.round.phase(), Phase::committed);
  EXPECT_EQ(job.round.counted().size(), 2);
  EXPECT_EQ(job.round.record().dropped, 1);
}

TEST(Round, IsAbandonedWithTooFew) {
  Asked short_of_ready(kFourOfSix, 10);
  EXPECT_TRUE(short_of_ready.round.on_ready(short_of_ready.asked[0], at(1)));
  short_of_ready.round.on_time(short_of_ready.round.deadline());
  EXPECT_EQ(short_of_ready.round.phase(), Phase::abandoned);
  EXPECT_EQ(told<Order::Stop>(short_of_ready.round.take_orders()).size(), 6);
  EXPECT_THAT(short_of_ready.round.record().reason, testing::HasSubstr("1 of at least 2"));

  Asked short_of_updates(kFourOfSix, 10);
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(short_of_updates.round.on_ready(short_of_updates.asked[i], at(1)));
  for (int i = 0; i < 3; ++i) short_of_updates.round.on_lost(short_of_updates.asked[i], at(2));
  EXPECT_EQ(short_of_updates.round.phase(), Phase::abandoned) << "as soon as it cannot succeed";

  Asked few(kFourOfSix, 1);
  EXPECT_EQ(few.round.phase(), Phase::abandoned);
}

TEST(Round, DoesNotWaitForTheLost) {
  Asked job(kFourOfSix, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(job.round.on_ready(job.asked[i], at(1)));
  for (int i = 3; i < 6; ++i) job.round.on_lost(job.asked[i], at(2));
  EXPECT_EQ(job.round.phase(), Phase::uploading);
  EXPECT_EQ(job.uploads().size(), 3);
}

TEST(Round, RefusesWhatItDidNotOrder) {
  Asked job(kFourOfSix, 10);
  const ClientId stranger = told<Order::Again>(job.orders)[0];
  EXPECT_FALSE(job.round.on_ready(stranger, at(1)));
  EXPECT_FALSE(job.round.on_update(job.asked[0], {}, at(1)));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(job.round.on_ready(job.asked[i], at(1)));
  EXPECT_FALSE(job.round.on_ready(job.asked[0], at(1)));
  const auto uploads = job.uploads();
  const auto& [client, upload] = *uploads.begin();
  Contribution longer = update(upload, 1);
  longer[0] = ModularVector(4, upload.bits);
  EXPECT_EQ(job.round.on_update(client, longer, at(2)).error().kind, ErrorKind::corrupted);
  EXPECT_TRUE(job.round.on_update(client, update(upload, 1), at(2)));
  EXPECT_FALSE(job.round.on_update(client, update(upload, 1), at(2))) << "it counts once";
  EXPECT_FALSE(job.round.on_check_in({.client = 99, .samples = 0}, at(3)));
  EXPECT_TRUE(job.round.on_ready(job.asked[5], at(3))) << "it did not know yet";
  EXPECT_THAT(told<Order::Stop>(job.round.take_orders()), ElementsAre(job.asked[5]));
}

TEST(Round, DrawsAsTheSeedSays) {
  const auto asked = [](std::int64_t number) { return Asked(kFourOfSix, 10, number).asked; };
  EXPECT_EQ(asked(3), asked(3));
  EXPECT_NE(asked(3), asked(4));
}

TEST(Round, DrawsInProportionToSamples) {
  RoundPolicy policy{.ask = 4, .use = 4, .least = 1, .pool = 10};
  policy.selection = Selection::proportional;
  std::vector<double> drawn(10);
  constexpr int kRounds = 20'000;
  for (std::int64_t number = 0; number < kRounds; ++number) {
    Asked job(policy, 10, number);
    for (const ClientId client : job.asked) EXPECT_TRUE(job.round.on_ready(client, at(1)));
    std::int64_t weights = 0;
    for (const auto& [client, upload] : job.uploads()) {
      drawn[static_cast<std::size_t>(client)] += static_cast<double>(upload.weight);
      weights += upload.weight;
    }
    EXPECT_EQ(weights, 4);
  }
  for (std::size_t i = 0; i < 10; ++i) {
    const double share = static_cast<double>(i + 1) / 55;
    const double deviation = std::sqrt(4.0 * kRounds * share * (1 - share));
    EXPECT_NEAR(drawn[i], 4 * kRounds * share, 4.5 * deviation);
  }
}

TEST(Selection, FairPrefersThoseThatCountedLeast) {
  std::vector<Candidate> candidates;
  for (ClientId one = 0; one < 20; ++one)
    candidates.push_back({.client = one, .samples = 1, .counted = one < 10 ? 0 : 9});
  int first = 0, all = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    for (const Drawn& drawn : draw(candidates, 4, Selection::fair, seed)) {
      first += drawn.client < 10;
      ++all;
    }
  }
  EXPECT_GT(first, all * 0.85);
  EXPECT_LT(first, all);
}

TEST(Round, CountsAClientOnceThatCallsAgain) {
  Round round({.ask = 2, .use = 2, .least = 1}, kShape, 1, 5);
  for (const std::int64_t samples : {5, 7})
    EXPECT_TRUE(round.on_check_in({.client = 3, .samples = samples}, at(0)));
  EXPECT_EQ(round.phase(), Phase::selecting);
  EXPECT_TRUE(round.on_check_in({.client = 1, .samples = 2}, at(0)));
  EXPECT_THAT(told<Order::Train>(round.take_orders()), ElementsAre(1, 3));
  for (const ClientId client : {1, 3}) EXPECT_TRUE(round.on_ready(client, at(1)));
  for (const Order& order : round.take_orders())
    if (order.client == 3) {
      EXPECT_EQ(std::get<Order::Upload>(order.what).weight, 7);
    }
}

TEST(Round, RefusesNumbersThatContradict) {
  EXPECT_THROW(check({.ask = 3, .use = 4, .least = 1}), Exception);
  EXPECT_THROW(check({.ask = 4, .use = 3, .least = 0}), Exception);
  EXPECT_THROW(check({.ask = 4, .use = 3, .least = 3, .pool = 2}), Exception);
  EXPECT_NO_THROW(check({.ask = 1, .use = 1, .least = 1}));
}

}  // namespace
}  // namespace gradwire::federated
