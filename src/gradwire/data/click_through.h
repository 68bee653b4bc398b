#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "gradwire/data/click_options.h"
#include "gradwire/data/data_set.h"
#include "gradwire/data/fashion_mnist.h"

namespace gradwire {

/// Number of classes: 1 is a click.
inline constexpr std::int64_t kClickClasses = 2;

/// Samples of dense features and one id of each categorical field, with clicks, in memory.
struct ClickData {
  torch::Tensor features;  ///< N x (dense + fields), float64: dense features, then ids, exactly.
  torch::Tensor clicks;    ///< N, int64, 0 or 1.

  std::int64_t size() const { return features.size(0); }

  /// Returns samples as they are: one tensor, since a batch has one. Thread-safe.
  Batch batch(const SampledBatch& sampled) const;
};

/// Makes the data from the seed; no files are read. Field f has the ids [rows f / fields,
/// rows (f + 1) / fields). The n-th of them is drawn with probability log(1 + 1/n) / log(1 + all),
/// which is Zipf's law with exponent 1 for large n. Dense features have mean 0 and variance 1. A
/// click is drawn with the probability of a hidden logistic model: a weight of each dense feature,
/// and an effect of each id, whose sum has three times the weights' standard deviation. So most of
/// what can be learned is in the ids. Throws Exception(invalid_argument) for fewer ids than fields,
/// or none.
ClickData make_clicks(Split split, const ClickOptions& options);

}  // namespace gradwire
