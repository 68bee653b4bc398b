#include "gradwire/train/federated/federation.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/log.h"
#include "gradwire/base/random.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/federated/small_federation.h"

namespace gradwire {
namespace {

using test::kClasses;
using test::kFeatures;
using test::linear;
using test::points;
using test::sgd;
using test::unequal;
using test::values_of;

FederationPlan ten_clients() {
  FederationPlan plan{.rounds = 3};
  plan.local.optimizer = sgd(0.1);
  plan.server.optimizer = sgd(1);
  return plan;
}

std::vector<float> values_after(const FederationPlan& plan, int clients = 10) {
  Federation federation(plan, points(330), unequal(clients), linear);
  federation.run();
  return values_of(federation);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

/// One step of SGD on all samples, in double precision.
std::vector<float> one_step_on_all(double rate) {
  const TrainableModule net = linear();
  net.module->to(torch::kFloat64);
  const DataSet data = points(330);
  std::vector<std::int64_t> all(330);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = data.batch({all, 330});
  net.loss(net.forward(batch.inputs.to(torch::kFloat64)), batch.targets).backward();
  std::vector<float> values;
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : net.module->parameters()) {
    const torch::Tensor stepped = (parameter - rate * parameter.grad()).reshape({-1});
    for (std::int64_t i = 0; i < stepped.numel(); ++i)
      values.push_back(static_cast<float>(stepped[i].item<double>()));
  }
  return values;
}

TEST(Federation, IsOneStepOnAllDataIfAllClientsDoOneEpochOfTheWholeBatch) {
  FederationPlan plan = ten_clients();
  plan.rounds = 1;
  plan.local.batch_size = 0;
  // The rounding of the first round's range is 5e-10, of float32 6e-8.
  EXPECT_LT(distance(values_after(plan), one_step_on_all(0.1)), 1e-6);
}

TEST(Federation, AveragesTheModelsOfClientsUnlessAnotherOptimizerIsGiven) {
  FederationPlan plan = ten_clients();
  const auto averaged = values_after(plan);
  plan.server.optimizer = nullptr;
  EXPECT_EQ(values_after(plan), averaged);
  plan.server.optimizer = sgd(0.5);
  EXPECT_NE(values_after(plan), averaged);
}

TEST(Federation, LearnsWithAnyOuterOptimizer) {
  FederationPlan plan = ten_clients();
  plan.rounds = 20;
  plan.devices.drop = 0.1;
  plan.round = {.ask = 6, .use = 5, .least = 2};
  plan.server.update = {.bits = 8, .rotate = true};
  const OptimizerFactory adam = [](const std::vector<torch::Tensor>& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.05));
  };
  for (const OptimizerFactory& optimizer : {sgd(1), sgd(0.3, 0.9), adam}) {
    plan.server.optimizer = optimizer;
    Federation federation(plan, points(330), unequal(10, true), linear);
    federation.test_on(points(330), 10);
    const FederationResult result = federation.run();
    ASSERT_EQ(result.rounds.size(), 20);
    EXPECT_FALSE(result.rounds[0].tested);
    EXPECT_GT(static_cast<double>(result.rounds.back().tested->correct) / 330, 0.8);
    EXPECT_EQ(result.by_client.size(), 10);
    EXPECT_GT(result.rounds.back().metrics.accuracy(), 0.7);
    EXPECT_GT(result.rounds.back().up_bytes, 0);
  }
}

TEST(Federation, HasTheSameBitsOnAnyNumberOfThreads) {
  FederationPlan plan = ten_clients();
  plan.round = {.ask = 7, .use = 6, .least = 2};
  plan.server.update = {.bits = 8, .rotate = true};
  plan.local.epochs = 2;
  plan.threads = 1;
  const auto one = values_after(plan);
  for (const int threads : {2, 4}) {
    plan.threads = threads;
    EXPECT_EQ(values_after(plan), one) << threads;
  }
}

TEST(Federation, GoesOnFromACheckpointWithTheSameRounds) {
  FederationPlan plan = ten_clients();
  plan.rounds = 6;
  plan.round = {.ask = 7, .use = 6, .least = 2};
  plan.server.update = {.bits = 8, .rotate = true};
  plan.server.optimizer = sgd(0.5, 0.9);
  plan.adapts_proximal = true;
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "federated.safetensors";
  Federation whole(plan, points(330), unequal(10), linear);
  for (int i = 0; i < 3; ++i) whole.next();
  whole.save(file);
  const FederationResult rest = whole.run();
  Federation resumed(plan, points(330), unequal(10), linear);
  resumed.load(file);
  const FederationResult again = resumed.run();
  ASSERT_EQ(again.rounds.size(), 3);
  EXPECT_EQ(values_of(whole), values_of(resumed));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again.rounds[i].record.number, rest.rounds[i].record.number);
    EXPECT_EQ(again.rounds[i].record.ended, rest.rounds[i].record.ended);
  }
  EXPECT_EQ(again.clients[3].counted, rest.clients[3].counted);
}

TEST(Federation, HasTheSameBitsUnderMasks) {
  FederationPlan plan = ten_clients();
  plan.round = {.ask = 10, .use = 10, .least = 5};
  const auto plain = values_after(plan);
  plan.round.secure = federated::SecureRound{.policy = {.neighbours = 9, .threshold = 5}};
  EXPECT_EQ(values_after(plan), plain);
  plan.round.secure->policy = {.neighbours = 9, .threshold = 7, .active = true};
  EXPECT_EQ(values_after(plan), plain);
}

TEST(Federation, RefusesMaskedSumsThatClientsWouldRefuse) {
  FederationPlan plan = ten_clients();
  plan.round = {.ask = 2, .use = 2, .least = 2};
  plan.round.secure = federated::SecureRound{.policy = {.neighbours = 1, .threshold = 1}};
  EXPECT_EQ(test::error_of([&] { values_after(plan); }), "no error");
  plan.server.update.keep = 0.5;
  EXPECT_THAT(test::error_of([&] { values_after(plan); }),
              testing::HasSubstr("may have 2 contributors"));
}

/// Checkpoints had no configuration at first.
void remove_configuration(const std::filesystem::path& checkpoint) {
  const SafetensorsFile content = load_safetensors(checkpoint);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : content.tensors) tensors.push_back({name, tensor});
  auto numbers = nlohmann::json::parse(content.metadata.at("federated"));
  auto run = nlohmann::json::parse(numbers.at("run").get<std::string>());
  ASSERT_EQ(run.erase("configuration"), 1u);
  numbers["run"] = run.dump();
  save_safetensors(checkpoint, tensors, {{"federated", numbers.dump()}});
}

TEST(Federation, GoesOnFromACheckpointWithoutAConfigurationAndSaysSo) {
  FederationPlan plan = ten_clients();
  plan.configuration = R"({"local": {"learning_rate": 0.1}})";
  const test::TemporaryFolder folder;
  const auto file = folder / "federated.safetensors";
  Federation whole(plan, points(330), unequal(10), linear);
  whole.next();
  whole.save(file);
  whole.run();
  remove_configuration(file);
  std::string said;
  set_log_sink([&](std::string_view line) { said += line; });
  Federation resumed(plan, points(330), unequal(10), linear);
  resumed.load(file);
  set_log_sink({});
  EXPECT_THAT(said, testing::HasSubstr(file.string()));
  EXPECT_THAT(said, testing::HasSubstr("wrote no configuration"));
  EXPECT_EQ(resumed.run().rounds.size(), 2u);
  EXPECT_EQ(values_of(resumed), values_of(whole));
}

TEST(Federation, ProximalTermKeepsClientsNearTheGlobalModel) {
  FederationPlan plan = ten_clients();
  plan.rounds = 1;
  plan.local.epochs = 20;
  const auto start = [&] {
    FederationPlan none = plan;
    none.local.epochs = 1;
    none.server.optimizer = sgd(0);
    return values_after(none);
  }();
  const double far = distance(values_after(plan), start);
  plan.proximal = 1;
  const double near = distance(values_after(plan), start);
  EXPECT_LT(near, 0.7 * far);
  EXPECT_GT(near, 0);
}

TEST(Federation, NormalizedUpdatesOfEqualStepsAreThePlainOnes) {
  FederationPlan plan = ten_clients();
  plan.local.batch_size = 0;  // One step for each client.
  const auto counted = values_after(plan);
  plan.partial = federated::Partial::normalize;
  EXPECT_EQ(values_after(plan), counted);
}

TEST(Federation, EndsIfEachRoundIsAbandoned) {
  FederationPlan plan = ten_clients();
  plan.devices.drop = 1;
  Federation federation(plan, points(330), unequal(10), linear);
  try {
    federation.run();
    FAIL();
  } catch (const Exception& e) {
    EXPECT_EQ(e.kind(), ErrorKind::aborted);
    EXPECT_THAT(e.what(), testing::HasSubstr("20 rounds in a row"));
  }
}

TEST(Federation, AveragesRunningStatistics) {
  const auto normalized = [] {
    torch::manual_seed(3);
    torch::nn::Sequential net(torch::nn::Linear(kFeatures, 8), torch::nn::BatchNorm1d(8),
                              torch::nn::Linear(8, kClasses));
    TrainableModule made = linear();
    return TrainableModule{net.ptr(),
                           [net](const torch::Tensor& x) mutable { return net->forward(x); },
                           made.loss, false};
  };
  FederationPlan plan = ten_clients();
  Federation federation(plan, points(330), unequal(10), normalized);
  federation.run();
  const auto& tensors = federation.tensors();
  const auto variance = std::ranges::find(tensors, "1.running_var", &NamedTensor::name);
  ASSERT_NE(variance, tensors.end());
  EXPECT_FALSE(torch::allclose(variance->tensor, torch::ones({8})));
  EXPECT_GT(variance->tensor.min().item<double>(), 0);
}

}  // namespace
}  // namespace gradwire
