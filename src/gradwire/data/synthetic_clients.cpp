#include "gradwire/data/synthetic_clients.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/data/draw.h"

namespace gradwire {
namespace {

constexpr auto kFeatureCount = static_cast<std::size_t>(kSyntheticFeatures);
constexpr auto kClassCount = static_cast<std::size_t>(kSyntheticClasses);

/// One client's model and distribution of inputs.
struct SyntheticClient {
  std::array<std::array<double, kFeatureCount>, kClassCount> weights;
  std::array<double, kClassCount> biases;
  std::array<double, kFeatureCount> means;
  std::int64_t samples = 0;
};

SyntheticClient draw_client(const SyntheticOptions& options, Random& random) {
  SyntheticClient client;
  const double u = options.alpha * draw_gaussian(random);
  const double b = options.beta * draw_gaussian(random);
  client.samples = static_cast<std::int64_t>(std::exp(4 + 2 * draw_gaussian(random))) + 50;
  for (auto& row : client.weights) {
    for (double& weight : row) weight = u + draw_gaussian(random);
  }
  for (double& bias : client.biases) bias = u + draw_gaussian(random);
  for (double& mean : client.means) mean = b + draw_gaussian(random);
  return client;
}

/// The largest logit of the features, as they are stored.
std::int64_t label_of(const SyntheticClient& client, const float* features) {
  std::size_t best = 0;
  double largest = 0;
  for (std::size_t i = 0; i < kClassCount; ++i) {
    double logit = client.biases[i];
    for (std::size_t j = 0; j < kFeatureCount; ++j) {
      logit += client.weights[i][j] * static_cast<double>(features[j]);
    }
    if (i > 0 && logit <= largest) continue;
    best = i;
    largest = logit;
  }
  return static_cast<std::int64_t>(best);
}

std::array<double, kFeatureCount> deviations() {
  std::array<double, kFeatureCount> all;
  for (std::size_t j = 0; j < kFeatureCount; ++j) {
    all[j] = std::pow(static_cast<double>(j + 1), -1.2 / 2);
  }
  return all;
}

}  // namespace

SyntheticData make_synthetic_clients(const SyntheticOptions& options) {
  if (!(options.alpha >= 0) || !(options.beta >= 0) || options.clients < 1) {
    refuse(
        "synthetic data: alpha is {}, beta {} and clients {}; none may be negative, and there "
        "must be a client",
        options.alpha, options.beta, options.clients);
  }
  const auto deviation = deviations();
  std::vector<float> features;
  std::vector<std::int64_t> labels;
  SyntheticData data;
  for (std::int64_t k = 0; k < options.clients; ++k) {
    Random random(mixed_seed({options.seed, static_cast<std::uint64_t>(k)}));
    const SyntheticClient client = draw_client(options, random);
    std::vector<std::int64_t> own(static_cast<std::size_t>(client.samples));
    std::iota(own.begin(), own.end(), static_cast<std::int64_t>(labels.size()));
    data.clients.add(own);
    for (std::int64_t i = 0; i < client.samples; ++i) {
      for (std::size_t j = 0; j < kFeatureCount; ++j) {
        const double x = client.means[j] + deviation[j] * draw_gaussian(random);
        features.push_back(static_cast<float>(x));
      }
      labels.push_back(label_of(client, features.data() + (features.size() - kFeatureCount)));
    }
  }
  data.labels = torch::tensor(labels, torch::kInt64);
  data.features =
      torch::tensor(features, torch::kFloat32).view({data.labels.size(0), kSyntheticFeatures});
  return data;
}

Batch SyntheticData::batch(const SampledBatch& sampled) const {
  const torch::NoGradGuard no_grad;
  const auto index = torch::tensor(sampled.samples, torch::kInt64);
  return {.inputs = features.index_select(0, index),
          .targets = labels.index_select(0, index),
          .own = sampled.own};
}

}  // namespace gradwire
