#include "gradwire/data/partition.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

std::vector<std::int64_t> random_labels(std::size_t count, std::uint64_t classes) {
  Random random(7);
  std::vector<std::int64_t> labels;
  for (std::size_t i = 0; i < count; ++i) {
    labels.push_back(static_cast<std::int64_t>(random.below(classes)));
  }
  return labels;
}

std::map<std::int64_t, std::int64_t> counts_of(const ClientSamples& clients, std::int64_t client,
                                               const std::vector<std::int64_t>& labels) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t sample : clients[client]) ++counts[labels.at(std::size_t(sample))];
  return counts;
}

/// Sizes of the smallest and the largest client.
std::pair<std::size_t, std::size_t> sizes_of(const ClientSamples& clients) {
  std::pair<std::size_t, std::size_t> sizes{~std::size_t{0}, 0};
  for (std::int64_t client = 0; client < clients.clients(); ++client) {
    sizes.first = std::min(sizes.first, clients[client].size());
    sizes.second = std::max(sizes.second, clients[client].size());
  }
  return sizes;
}

std::string refusal(const std::vector<std::int64_t>& labels, const PartitionOptions& options) {
  try {
    partition(labels, options);
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

const std::vector<PartitionOptions> kAllKinds{{.kind = "iid"},
                                              {.kind = "shards", .shards = 2},
                                              {.kind = "shards", .shards = 3},
                                              {.kind = "dirichlet", .alpha = 0.01},
                                              {.kind = "dirichlet", .alpha = 30},
                                              {.kind = "power_law"},
                                              {.kind = "power_law", .deviation = 0.5, .classes = 2},
                                              {.kind = "classes", .classes = 1},
                                              {.kind = "classes", .classes = 4}};

TEST(Partition, GivesEachSampleToOneClient) {
  for (const std::size_t samples : {std::size_t{997}, std::size_t{5'000}}) {
    const auto labels = random_labels(samples, 7);
    for (auto options : kAllKinds) {
      for (const std::int64_t clients : {1, 7, 100}) {
        options.clients = clients;
        if (clients * options.classes < 7 && options.classes > 0) continue;  // Leaves some out.
        const ClientSamples made = partition(labels, options);
        EXPECT_EQ(made.clients(), clients);
        std::set<std::int64_t> given;
        for (std::int64_t client = 0; client < clients; ++client) {
          given.insert(made[client].begin(), made[client].end());
        }
        EXPECT_EQ(given.size(), samples) << options.kind;
        EXPECT_EQ(made.total(), std::int64_t(samples)) << options.kind;
        EXPECT_EQ(*given.rbegin(), std::int64_t(samples) - 1);
        EXPECT_GE(sizes_of(made).first, 1u) << options.kind;
      }
    }
  }
}

TEST(Partition, IsAFunctionOfTheSeed) {
  const auto labels = random_labels(2'000, 10);
  for (auto options : kAllKinds) {
    options.clients = 20;
    const ClientSamples first = partition(labels, options);
    EXPECT_EQ(first, partition(labels, options)) << options.kind;
    options.seed = 2;
    EXPECT_NE(first, partition(labels, options)) << options.kind;
  }
}

TEST(Partition, OfEqualPartsDiffersByOneSample) {
  const auto labels = random_labels(1'003, 10);
  for (const std::string kind : {"iid", "dirichlet"}) {
    const auto sizes = sizes_of(partition(labels, {.kind = kind, .clients = 100}));
    EXPECT_EQ(sizes.first, 10u);
    EXPECT_EQ(sizes.second, 11u);
  }
  const auto sizes = sizes_of(partition(labels, {.kind = "shards", .clients = 100, .shards = 2}));
  EXPECT_GE(sizes.first, 10u);
  EXPECT_LE(sizes.second, 12u);
}

TEST(Partition, IidMixesClasses) {
  const auto labels = random_labels(60'000, 10);
  const ClientSamples clients = partition(labels, {.kind = "iid", .clients = 100});
  for (std::int64_t client = 0; client < 100; ++client) {
    for (const auto& [label, count] : counts_of(clients, client, labels)) {
      EXPECT_NEAR(double(count), 60, 40) << label;  // Five standard deviations.
    }
  }
}

/// 60,000 samples of ten classes, two shards for each of a hundred clients: McMahan's split.
TEST(Partition, ShardsHaveFewClasses) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 60'000; ++i) labels.push_back(i % 10);
  const ClientSamples clients = partition(labels, {.kind = "shards", .clients = 100});
  std::int64_t of_one_class = 0;
  for (std::int64_t client = 0; client < 100; ++client) {
    const auto counts = counts_of(clients, client, labels);
    EXPECT_LE(counts.size(), 2u);
    EXPECT_EQ(clients[client].size(), 600u);
    of_one_class += counts.size() == 1 ? 1 : 0;
  }
  EXPECT_GT(of_one_class, 0);
  EXPECT_LT(of_one_class, 30);
}

TEST(Partition, DirichletGoesFromOneClassToAll) {
  const auto labels = random_labels(20'000, 10);
  const auto largest_share = [&](double alpha) {
    const ClientSamples clients =
        partition(labels, {.kind = "dirichlet", .clients = 50, .alpha = alpha});
    double sum = 0;
    for (std::int64_t client = 0; client < 50; ++client) {
      std::int64_t largest = 0;
      for (const auto& [label, count] : counts_of(clients, client, labels)) {
        largest = std::max(largest, count);
      }
      sum += double(largest) / double(clients[client].size());
    }
    return sum / 50;
  };
  EXPECT_GT(largest_share(0.001), 0.85);
  EXPECT_LT(largest_share(1'000), 0.2);
  EXPECT_GT(largest_share(0.5), largest_share(5) + 0.1);
  EXPECT_GT(largest_share(5), largest_share(50) + 0.05);
}

TEST(Partition, ClassesAreDealtEvenly) {
  const auto labels = random_labels(10'000, 10);
  const ClientSamples clients = partition(labels, {.kind = "classes", .clients = 33, .classes = 3});
  std::map<std::int64_t, std::int64_t> dealt;
  for (std::int64_t client = 0; client < 33; ++client) {
    const auto counts = counts_of(clients, client, labels);
    EXPECT_EQ(counts.size(), 3u);
    for (const auto& [label, count] : counts) ++dealt[label];
  }
  for (const auto& [label, count] : dealt) EXPECT_TRUE(count == 9 || count == 10) << count;
}

TEST(Partition, LeavesOutClassesOfNoClient) {
  const auto labels = random_labels(1'000, 10);
  const ClientSamples clients = partition(labels, {.kind = "classes", .clients = 2, .classes = 3});
  std::set<std::int64_t> seen;
  for (const std::int64_t client : {0, 1}) {
    for (const auto& [label, count] : counts_of(clients, client, labels)) {
      seen.insert(label);
      EXPECT_EQ(count, std::ranges::count(labels, label));
    }
  }
  EXPECT_EQ(seen.size(), 6u);
}

/// The sizes' logarithms have the deviation, and a mean that makes them the whole.
TEST(Partition, PowerLawHasLogNormalSizes) {
  const auto labels = random_labels(400'000, 10);
  const ClientSamples clients =
      partition(labels, {.kind = "power_law", .clients = 1'000, .deviation = 1});
  double sum = 0, squares = 0;
  for (std::int64_t client = 0; client < 1'000; ++client) {
    const double size = std::log(double(clients[client].size()));
    sum += size;
    squares += size * size;
  }
  const double mean = sum / 1'000;
  EXPECT_NEAR(std::sqrt(squares / 1'000 - mean * mean), 1, 0.1);
  EXPECT_NEAR(mean, std::log(400.0) - 0.5, 0.2);  // The mean of a log-normal: exp(m + s^2 / 2).
}

TEST(Partition, RefusesWhatCannotBeDivided) {
  const auto labels = random_labels(50, 5);
  EXPECT_THAT(refusal(labels, {.kind = "shard"}), HasSubstr("did you mean \"shards\""));
  EXPECT_THAT(refusal(labels, {.kind = "iid", .clients = 51}),
              HasSubstr("51 clients share 50 samples, and each needs one; use at most 50"));
  EXPECT_THAT(refusal(labels, {.kind = "iid", .clients = 0}), HasSubstr("must be positive"));
  EXPECT_THAT(refusal(labels, {.kind = "shards", .clients = 20, .shards = 3}),
              HasSubstr("20 clients with 3 shards each need 60 samples"));
  EXPECT_THAT(refusal(labels, {.kind = "shards", .clients = 50, .shards = INT64_MAX}),
              HasSubstr("shards"));
  EXPECT_THAT(refusal(labels, {.kind = "dirichlet", .clients = 5, .alpha = 0}),
              HasSubstr("alpha is 0"));
  EXPECT_THAT(refusal(labels, {.kind = "classes", .clients = 5}), HasSubstr("needs \"classes\""));
  EXPECT_THAT(refusal(labels, {.kind = "classes", .clients = 5, .classes = 6}),
              HasSubstr("the samples have 5 classes"));
  EXPECT_THAT(refusal(labels, {.kind = "classes", .clients = 50, .classes = 5}),
              HasSubstr("50 clients share the"));
  EXPECT_THAT(refusal({}, {.kind = "iid", .clients = 1}), HasSubstr("share 0 samples"));
}

TEST(HoldOut, SplitsEachClient) {
  const auto labels = random_labels(1'000, 10);
  const ClientSamples clients = partition(labels, {.kind = "power_law", .clients = 30});
  const HeldOut split = hold_out(clients, 0.2, 3);
  for (std::int64_t client = 0; client < 30; ++client) {
    std::multiset<std::int64_t> both(split.train[client].begin(), split.train[client].end());
    both.insert(split.held_out[client].begin(), split.held_out[client].end());
    EXPECT_EQ(both, std::multiset<std::int64_t>(clients[client].begin(), clients[client].end()));
    EXPECT_GE(split.train[client].size(), 1u);
    EXPECT_NEAR(double(split.held_out[client].size()), 0.2 * double(clients[client].size()), 0.5);
  }
  EXPECT_EQ(hold_out(clients, 0.2, 3).train, split.train);
  EXPECT_NE(hold_out(clients, 0.2, 4).train, split.train);
  EXPECT_EQ(hold_out(clients, 0, 3).held_out.total(), 0);
  EXPECT_THROW(hold_out(clients, 1, 3), Exception);
}

TEST(HoldOut, LeavesASampleToTrain) {
  ClientSamples clients;
  clients.add(std::vector<std::int64_t>{5});
  clients.add(std::vector<std::int64_t>{});
  clients.add(std::vector<std::int64_t>{6, 7});
  const HeldOut split = hold_out(clients, 0.9, 1);
  EXPECT_EQ(split.train[0].size(), 1u);
  EXPECT_EQ(split.held_out[1].size(), 0u);
  EXPECT_EQ(split.held_out[2].size(), 1u);
}

}  // namespace
}  // namespace gradwire::test
