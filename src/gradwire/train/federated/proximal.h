#pragma once

#include <optional>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// FedProx's proximal term, mu / 2 * |w - w_t|^2, which a client adds to its loss to stay near the
/// global model w_t (Li et al., MLSys 2020, arXiv:1812.06127, equation 2). The norm is squared, and
/// over all parameters.
torch::Tensor proximal_loss(const std::vector<torch::Tensor>& parameters,
                            const std::vector<torch::Tensor>& global, double mu);

/// Adds that term's gradient, mu * (w - w_t), to the gradients. Parameters without a gradient stay
/// without one.
void add_proximal_gradient(const std::vector<torch::Tensor>& parameters,
                           const std::vector<torch::Tensor>& global, double mu);

/// FedProx's heuristic for mu, over rounds: it grows by 0.1 when the loss rises, and falls by 0.1
/// after five falls of the loss in a row, but not below 0 (section 5.3.2 of the paper). A value.
struct AdaptiveProximal {
  double mu = 0;
  std::optional<double> last_loss;
  int falls = 0;  ///< In a row.

  /// Takes the loss of the global model after a round.
  void observe(double loss);

  bool operator==(const AdaptiveProximal&) const = default;
};

}  // namespace gradwire
