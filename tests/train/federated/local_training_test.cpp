#include "gradwire/train/federated/local_training.h"

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/federated/proximal.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

torch::nn::Sequential local_net(torch::ScalarType type) {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::Tanh(), torch::nn::Linear(6, 3));
  net->to(type);
  return net;
}

OptimizerFactory plain_sgd(double rate) {
  return [rate](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters), rate);
  };
}

/// Samples of several clients, one after another.
struct LocalData {
  explicit LocalData(std::int64_t count) {
    auto generator = at::detail::createCPUGenerator(9);
    inputs = torch::randn({count, 4}, generator, torch::kFloat64);
    targets = torch::randint(0, 3, {count}, generator, torch::kInt64);
  }

  /// The loss of a client whose samples begin at `first`.
  LocalTraining::Loss loss_of(torch::nn::Sequential net, std::int64_t first) const {
    return [this, net, first](std::span<const std::int64_t> samples) mutable {
      const auto index =
          torch::tensor(std::vector<std::int64_t>(samples.begin(), samples.end())) + first;
      return torch::cross_entropy_loss(net->forward(inputs.index_select(0, index)),
                                       targets.index_select(0, index));
    };
  }

  torch::Tensor inputs, targets;
};

torch::Tensor flat_of(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : net->parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts).clone();
}

TEST(LocalTraining, OneEpochOfAllIsAStepOnAllData) {
  const std::vector<std::int64_t> sizes{1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const LocalData data(all);
  auto net = local_net(torch::kFloat64);
  const auto global = flat_of(net);
  LocalTraining training(*net, {.optimizer = plain_sgd(1)});
  auto average = torch::zeros_like(global);
  double loss = 0;
  std::int64_t first = 0;
  for (std::size_t client = 0; client < sizes.size(); ++client) {
    training.load(global);
    const auto result = training.run({.client = std::int64_t(client), .samples = sizes[client]},
                                     data.loss_of(net, first));
    EXPECT_EQ(result.steps, 1);
    EXPECT_EQ(result.samples, sizes[client]);
    const double weight = double(sizes[client]) / double(all);
    average += (training.flat() - global) * weight;
    loss += result.mean_loss * weight;
    first += sizes[client];
  }
  auto whole = local_net(torch::kFloat64);
  const auto whole_loss = torch::cross_entropy_loss(whole->forward(data.inputs), data.targets);
  whole_loss.backward();
  torch::optim::SGD(whole->parameters(), 1).step();
  EXPECT_TRUE((global + average).allclose(flat_of(whole), 0, 1e-6));
  EXPECT_LT(((global + average) - flat_of(whole)).abs().max().item<double>(), 1e-12);
  EXPECT_GT(average.abs().max().item<double>(), 1e-2);
  EXPECT_NEAR(loss, whole_loss.item<double>(), 1e-12);
}

TEST(LocalTraining, BatchesOfAnEpochHaveEachSampleOnce) {
  auto net = local_net(torch::kFloat64);
  const LocalData data(23);
  std::vector<std::vector<std::int64_t>> epochs(3);
  std::vector<std::size_t> sizes;
  LocalTraining training(*net, {.epochs = 3, .batch_size = 10, .optimizer = plain_sgd(0.1)});
  auto loss = data.loss_of(net, 0);
  std::size_t steps = 0;
  const auto result = training.run({.samples = 23}, [&](auto samples) {
    sizes.push_back(samples.size());
    auto& epoch = epochs.at(steps++ / 3);
    epoch.insert(epoch.end(), samples.begin(), samples.end());
    return loss(samples);
  });
  EXPECT_EQ(result.steps, 9);
  EXPECT_EQ(result.samples, 69);
  EXPECT_EQ(steps_of(training.plan(), 23), 9);
  EXPECT_THAT(sizes, ::testing::ElementsAre(10, 10, 3, 10, 10, 3, 10, 10, 3));
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set(epoch.begin(), epoch.end()).size(), 23u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(LocalTraining, AClientHasTheSameBitsOnAnyThread) {
  const LocalData data(60);
  const auto trained = [&](std::int64_t round, std::int64_t client, std::uint64_t seed) {
    torch::Tensor result;
    std::jthread([&, client] {
      auto net = local_net(torch::kFloat64);
      const auto global = flat_of(net);
      LocalTraining training(
          *net, {.epochs = 2, .batch_size = 8, .optimizer = plain_sgd(0.1), .seed = seed});
      for (const std::int64_t before : {client + 1, client}) {  // Serves another one first.
        training.load(global);
        training.run({.round = round, .client = before, .samples = 60}, data.loss_of(net, 0));
      }
      result = training.flat().clone();
    }).join();
    return result;
  };
  const auto expected = trained(1, 2, 3);
  EXPECT_TRUE(trained(1, 2, 3).equal(expected));
  EXPECT_FALSE(trained(2, 2, 3).equal(expected));
  EXPECT_FALSE(trained(1, 3, 3).equal(expected));
  EXPECT_FALSE(trained(1, 2, 4).equal(expected));
}

TEST(LocalTraining, StopsForPartialWork) {
  const LocalData data(60);
  auto net = local_net(torch::kFloat64);
  const auto global = flat_of(net);
  LocalTraining training(*net, {.epochs = 5, .batch_size = 10, .optimizer = plain_sgd(0.1)});
  const auto run = [&](const LocalWork& work) {
    training.load(global);
    return training.run(work, data.loss_of(net, 0));
  };
  EXPECT_EQ(run({.samples = 60, .max_steps = 7}).steps, 7);
  const auto seven = training.flat().clone();
  int asked = 0;
  const auto result = run({.samples = 60, .goes_on = [&] { return ++asked <= 7; }});
  EXPECT_EQ(result.steps, 7);
  EXPECT_EQ(result.samples, 70);
  EXPECT_TRUE(training.flat().equal(seven));
  EXPECT_EQ(run({.samples = 60, .max_steps = 0}).steps, 0);
  EXPECT_TRUE(training.flat().equal(global));
}

/// Plain SGD has a shorter way, of the same bits. With a momentum of 1e-300 it is not plain.
TEST(LocalTraining, StepsAsTheOptimizerDoes) {
  const LocalData data(40);
  const auto trained = [&](double momentum) {
    auto net = local_net(torch::kFloat64);
    LocalTraining training(
        *net, {.epochs = 3, .batch_size = 7, .optimizer = [&](std::vector<torch::Tensor> all) {
                 return std::make_unique<torch::optim::SGD>(
                     std::move(all), torch::optim::SGDOptions(0.2).momentum(momentum));
               }});
    training.run({.samples = 40}, data.loss_of(net, 0));
    return training.flat().clone();
  };
  EXPECT_TRUE(trained(0).equal(trained(1e-300)));
  EXPECT_FALSE(trained(0).equal(trained(0.5)));
}

TEST(LocalTraining, MakesANewOptimizerForEachClient) {
  const LocalData data(20);
  auto net = local_net(torch::kFloat64);
  const auto global = flat_of(net);
  LocalTraining training(*net,
                         {.epochs = 4, .optimizer = [](std::vector<torch::Tensor> parameters) {
                            return std::make_unique<torch::optim::Adam>(
                                std::move(parameters), torch::optim::AdamOptions(0.1));
                          }});
  const auto run = [&] {
    training.load(global);
    training.run({.samples = 20}, data.loss_of(net, 0));
    return training.flat().clone();
  };
  const auto first = run();
  EXPECT_TRUE(run().equal(first));
}

TEST(LocalTraining, ProximalTermKeepsClientsNearTheGlobalModel) {
  const LocalData data(20);
  auto net = local_net(torch::kFloat64);
  const auto global = flat_of(net);
  LocalTraining training(*net, {.epochs = 30, .batch_size = 5, .optimizer = plain_sgd(0.1)});
  double last = 1e9;
  for (const double mu : {0.0, 0.5, 2.0}) {
    training.set_proximal(mu);
    training.load(global);
    training.run({.samples = 20}, data.loss_of(net, 0));
    const double distance = (training.flat() - global).norm().item<double>();
    EXPECT_LT(distance, 0.8 * last) << mu;
    EXPECT_GT(distance, 1e-3) << mu;
    last = distance;
  }
}

TEST(LocalTraining, RefusesWhatItCannotTrain) {
  const auto error_of = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    return "no error";
  };
  auto net = local_net(torch::kFloat64);
  EXPECT_THAT(error_of([&] { LocalTraining(*net, {}); }), HasSubstr("optimizer is missing"));
  EXPECT_THAT(error_of([&] { LocalTraining(*net, {.epochs = 0, .optimizer = plain_sgd(1)}); }),
              HasSubstr("epochs is 0"));
  LocalTraining training(*net, {.optimizer = plain_sgd(1)});
  EXPECT_THAT(error_of([&] { training.load(torch::zeros({3})); }),
              HasSubstr("the global model has 3 values, and the module 51"));
  EXPECT_THAT(error_of([&] { training.run({.client = 4}, nullptr); }),
              HasSubstr("client 4 has 0 samples"));
  torch::nn::Sequential mixed(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  mixed->ptr(1)->to(torch::kFloat64);
  EXPECT_THAT(error_of([&] { LocalTraining(*mixed, {.optimizer = plain_sgd(1)}); }),
              HasSubstr("parameter 1.weight has another type"));
}

TEST(Proximal, GradientIsThatOfTheLossByFiniteDifferences) {
  auto generator = at::detail::createCPUGenerator(3);
  const std::vector<torch::Tensor> global{torch::randn({3, 2}, generator, torch::kFloat64),
                                          torch::randn({4}, generator, torch::kFloat64)};
  std::vector<torch::Tensor> parameters;
  for (const auto& tensor : global) {
    parameters.push_back(torch::randn(tensor.sizes(), generator, torch::kFloat64).requires_grad_());
    parameters.back().mutable_grad() = torch::ones_like(tensor);
  }
  constexpr double kMu = 0.7, kStep = 1e-5;
  add_proximal_gradient(parameters, global, kMu);
  for (const auto& parameter : parameters) {
    const torch::NoGradGuard no_grad;
    auto values = parameter.view({-1});
    const auto gradient = parameter.grad().view({-1}) - 1;
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const auto loss_at = [&](double change) {
        values[i] += change;
        const double loss = proximal_loss(parameters, global, kMu).item<double>();
        values[i] -= change;
        return loss;
      };
      EXPECT_NEAR(gradient[i].item<double>(), (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep),
                  1e-8);
    }
  }
  // The differentiable loss has the same gradient.
  std::vector<torch::Tensor> taken;
  for (auto& parameter : parameters) {
    taken.push_back(parameter.grad().clone() - 1);
    parameter.mutable_grad().reset();
  }
  proximal_loss(parameters, global, kMu).backward();
  for (std::size_t i = 0; i < taken.size(); ++i) {
    EXPECT_TRUE(parameters[i].grad().allclose(taken[i], 0, 1e-12));
  }
}

TEST(AdaptiveProximal, RisesWithTheLossAndFallsAfterFiveFalls) {
  AdaptiveProximal adaptive{.mu = 0.1};
  const auto observe = [&](std::initializer_list<double> losses) {
    for (const double loss : losses) adaptive.observe(loss);
    return adaptive.mu;
  };
  EXPECT_DOUBLE_EQ(observe({5, 6}), 0.2);
  EXPECT_DOUBLE_EQ(observe({7}), 0.3);
  EXPECT_DOUBLE_EQ(observe({6, 5, 4, 3}), 0.3);
  EXPECT_DOUBLE_EQ(observe({2.9}), 0.2);
  EXPECT_DOUBLE_EQ(observe({2.8, 2.7, 2.6, 2.5}), 0.2);
  EXPECT_DOUBLE_EQ(observe({2.5}), 0.2);  // Neither: the falls are no longer in a row.
  EXPECT_DOUBLE_EQ(observe({2.4, 2.3, 2.2, 2.1, 2}), 0.1);
  EXPECT_NEAR(observe({1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1}), 0, 1e-15);
  EXPECT_GE(adaptive.mu, 0);
}

}  // namespace
}  // namespace gradwire::test
