#include "gradwire/data/synthetic_clients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"

namespace gradwire::test {
namespace {

torch::Tensor features_of(const SyntheticData& data, std::int64_t client) {
  const auto samples = data.clients[client];
  return data.features.narrow(0, samples.front(), std::int64_t(samples.size()));
}

TEST(SyntheticClients, AreAFunctionOfTheSeed) {
  const SyntheticData first = make_synthetic_clients({.seed = 4});
  const SyntheticData again = make_synthetic_clients({.seed = 4});
  EXPECT_EQ(first.clients.clients(), 30);
  EXPECT_EQ(first.clients.total(), first.size());
  EXPECT_EQ(first.clients, again.clients);
  EXPECT_TRUE(first.features.equal(again.features));
  EXPECT_TRUE(first.labels.equal(again.labels));
  const SyntheticData other = make_synthetic_clients({.seed = 5});
  EXPECT_FALSE(
      features_of(first, 0).narrow(0, 0, 50).equal(features_of(other, 0).narrow(0, 0, 50)));
  // A client's samples do not depend on the others.
  const SyntheticData fewer = make_synthetic_clients({.clients = 3, .seed = 4});
  EXPECT_TRUE(features_of(first, 2).equal(features_of(fewer, 2)));
}

/// The distributions of the paper, over enough clients that six standard errors are small.
TEST(SyntheticClients, HaveTheDistributionsOfThePaper) {
  const SyntheticData data = make_synthetic_clients({.alpha = 1, .beta = 2, .clients = 400});
  torch::Tensor logs = torch::empty({400}, torch::kFloat64);
  torch::Tensor means = torch::empty({400, 60}, torch::kFloat64);
  torch::Tensor within = torch::zeros({60}, torch::kFloat64);
  for (std::int64_t client = 0; client < 400; ++client) {
    const auto own = features_of(data, client).to(torch::kFloat64);
    logs[client] = std::log(double(own.size(0)) - 49.5);
    means[client] = own.mean(0);
    within += (own - means[client]).square().sum(0);
    EXPECT_GE(own.size(0), 50);
  }
  EXPECT_NEAR(logs.mean().item<double>(), 4, 0.6);
  EXPECT_NEAR(logs.std().item<double>(), 2, 0.42);
  within /= double(data.size() - 400);
  for (const std::int64_t j : {1, 2, 10, 60}) {
    const double variance = std::pow(double(j), -1.2);
    EXPECT_NEAR(within[j - 1].item<double>(), variance, 0.05 * variance) << j;
  }
  // v_j ~ N(B, 1) within a client, B ~ N(0, beta) over clients.
  EXPECT_NEAR(means.std(1).square().mean().item<double>(), 1, 0.05);
  EXPECT_NEAR(means.mean(1).std().item<double>(), 2, 0.42);
}

/// Clients with one model are easier to learn together than clients with models of their own.
TEST(SyntheticClients, LabelsFollowEachClientsModel) {
  const SyntheticData data = make_synthetic_clients({});
  EXPECT_GE(data.labels.min().item<std::int64_t>(), 0);
  EXPECT_LE(data.labels.max().item<std::int64_t>(), 9);
  std::int64_t all = 0, most = 0;
  for (std::int64_t client = 0; client < 30; ++client) {
    const auto samples = data.clients[client];
    const auto own = data.labels.narrow(0, samples.front(), std::int64_t(samples.size()));
    most += own.bincount().max().item<std::int64_t>();
    all += own.size(0);
  }
  EXPECT_GT(double(most) / double(all), 0.3) << "a client has a class that prevails";
  EXPECT_LT(double(data.labels.bincount().max().item<std::int64_t>()) / double(all), 0.7);
}

TEST(SyntheticClients, RefuseSettingsOutOfRange) {
  EXPECT_THROW(make_synthetic_clients({.alpha = -1}), Exception);
  EXPECT_THROW(make_synthetic_clients({.clients = 0}), Exception);
}

TEST(SyntheticClients, GiveBatches) {
  const SyntheticData data = make_synthetic_clients({.clients = 1});
  const Batch batch = data.batch({.samples = {3, 1}, .own = 2});
  EXPECT_TRUE(batch.inputs[0].equal(data.features[3]));
  EXPECT_TRUE(batch.targets[1].equal(data.labels[1]));
}

}  // namespace
}  // namespace gradwire::test
