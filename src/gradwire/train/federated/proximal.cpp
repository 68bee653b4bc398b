#include "gradwire/train/federated/proximal.h"

#include <algorithm>
#include <cstddef>

#include "gradwire/base/check.h"

namespace gradwire {
namespace {

constexpr double kMuChange = 0.1;
constexpr int kFallsOfLoss = 5;

}  // namespace

torch::Tensor proximal_loss(const std::vector<torch::Tensor>& parameters,
                            const std::vector<torch::Tensor>& global, double mu) {
  GRADWIRE_CHECK(!parameters.empty() && parameters.size() == global.size());
  std::vector<torch::Tensor> squares;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    squares.push_back((parameters[i] - global[i].detach()).square().sum());
  }
  return torch::stack(squares).sum() * (mu / 2);
}

void add_proximal_gradient(const std::vector<torch::Tensor>& parameters,
                           const std::vector<torch::Tensor>& global, double mu) {
  GRADWIRE_CHECK(parameters.size() == global.size());
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto& gradient = parameters[i].mutable_grad();
    if (gradient.defined()) gradient.add_(parameters[i] - global[i], mu);
  }
}

void AdaptiveProximal::observe(double loss) {
  const bool rises = last_loss && loss > *last_loss;
  const bool declines = last_loss && loss < *last_loss;
  falls = declines ? falls + 1 : 0;
  if (rises) mu += kMuChange;
  if (falls == kFallsOfLoss) {
    mu = std::max(0.0, mu - kMuChange);
    falls = 0;
  }
  last_loss = loss;
}

}  // namespace gradwire
