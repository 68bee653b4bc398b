#include "gradwire/train/federated/dense_classifier.h"

#include <gtest/gtest.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

torch::nn::Sequential net_of(const std::vector<std::int64_t>& widths) {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  net->push_back(torch::nn::Flatten());
  for (std::size_t i = 1; i < widths.size(); ++i) {
    net->push_back(torch::nn::Linear(widths[i - 1], widths[i]));
    if (i + 1 < widths.size()) net->push_back(torch::nn::ReLU());
  }
  net->push_back(torch::nn::LogSoftmax(1));
  return net;
}

TEST(DenseClassifier, HasTheLossAndGradientsOfAutograd) {
  for (const std::vector<std::int64_t>& widths :
       {std::vector<std::int64_t>{12, 5}, {12, 7, 5}, {12, 9, 8, 5}}) {
    torch::nn::Sequential net = net_of(widths);
    DenseClassifier dense(net->parameters());
    for (const std::int64_t samples : {1, 10}) {
      const torch::Tensor inputs = torch::randn({samples, 3, 4});
      const torch::Tensor targets = torch::randint(5, {samples}, torch::kInt64);
      for (auto& parameter : net->parameters()) parameter.mutable_grad().reset();
      const torch::Tensor expected = torch::nll_loss_nd(net->forward(inputs), targets);
      expected.backward();
      std::vector<torch::Tensor> gradients;
      for (const auto& parameter : net->parameters()) gradients.push_back(parameter.grad().clone());
      const torch::Tensor loss = dense.differentiate(inputs, targets);
      EXPECT_FALSE(loss.requires_grad());
      EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6);
      const auto parameters = net->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i)
        EXPECT_LT((parameters[i].grad() - gradients[i]).abs().max().item<double>(), 1e-6);
    }
  }
}

TEST(DenseClassifier, RefusesOtherShapes) {
  const torch::Tensor weight = torch::zeros({5, 12}), bias = torch::zeros({5});
  EXPECT_THROW(DenseClassifier({}), Exception);
  EXPECT_THROW(DenseClassifier({weight}), Exception);
  EXPECT_THROW(DenseClassifier({weight, torch::zeros({4})}), Exception);
  EXPECT_THROW(DenseClassifier({weight, bias, torch::zeros({3, 4}), torch::zeros({3})}), Exception);
}

}  // namespace
}  // namespace gradwire
