#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/data/partition.h"

namespace gradwire {

inline constexpr std::int64_t kSyntheticFeatures = 60;
inline constexpr std::int64_t kSyntheticClasses = 10;

/// FedProx's synthetic data: clients whose models and whose inputs differ.
struct SyntheticOptions {
  double alpha = 1;  ///< How much the clients' models differ.
  double beta = 1;   ///< How much the clients' inputs differ.
  std::int64_t clients = 30;
  std::uint64_t seed = 1;
};

/// Samples of all clients, in memory.
struct SyntheticData {
  torch::Tensor features;  ///< N x 60, float32.
  torch::Tensor labels;    ///< N, int64, 0 .. 9.
  ClientSamples clients;   ///< The samples of each.

  std::int64_t size() const { return features.size(0); }

  /// Thread-safe.
  Batch batch(const SampledBatch& sampled) const;
};

/// Makes synthetic(alpha, beta) of Li et al., MLSys 2020 (arXiv:1812.06127), section 5.1 and
/// appendix C.1. Client k has y = argmax(softmax(W x + b)), with
///
///     u ~ N(0, alpha)   W_ij, b_i ~ N(u, 1)                        W: 10 x 60
///     B ~ N(0, beta)    v_j ~ N(B, 1)    x_j ~ N(v_j, S_j)         S_j = j^-1.2, j = 1 .. 60
///
/// and floor(exp(N(4, 2))) + 50 samples. alpha, beta and 2 are standard deviations, as in the
/// authors' program, and S_j is a variance. A client's samples depend on the seed and its number
/// alone, and are the same on every platform. Throws Exception(invalid_argument) for settings out
/// of range.
SyntheticData make_synthetic_clients(const SyntheticOptions& options);

}  // namespace gradwire
