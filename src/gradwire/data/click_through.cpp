#include "gradwire/data/click_through.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

constexpr double kDenseDeviation = 0.6, kIdDeviation = 1.8;

/// Streams of random numbers.
enum Stream : std::uint64_t { kTrainSamples, kTestSamples, kWeights, kEffects };

/// Mean 0, variance 1, nearly normal: without logarithms, so that it is fast.
double draw_normal(Random& random) {
  const double sum = random.unit() + random.unit() + random.unit() + random.unit();
  return (sum - 2) * std::sqrt(3.0);
}

/// Heavy-tailed in 0 .. count - 1.
std::int64_t draw_rank(Random& random, std::int64_t count) {
  const double drawn = std::exp(random.unit() * std::log(static_cast<double>(count) + 1));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(drawn) - 1, 0, count - 1);
}

/// The hidden logistic model.
class ClickModel {
 public:
  explicit ClickModel(const ClickOptions& options) : options_(options) {
    Random random(mixed_seed({options.seed, kWeights}));
    for (std::int64_t i = 0; i < options.dense; ++i) weights_.push_back(draw_normal(random));
  }

  /// The logit of a click.
  double logit(const double* features) const {
    double dense = 0, ids = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) dense += weights_[i] * features[i];
    for (std::int64_t field = 0; field < options_.fields; ++field) {
      const double id = features[options_.dense + field];
      Random effect(mixed_seed({options_.seed, kEffects, static_cast<std::uint64_t>(id)}));
      ids += draw_normal(effect);
    }
    return kDenseDeviation * dense / std::sqrt(static_cast<double>(options_.dense)) +
           kIdDeviation * ids / std::sqrt(static_cast<double>(options_.fields));
  }

 private:
  ClickOptions options_;
  std::vector<double> weights_;
};

/// Draws one sample. Returns true for a click.
bool draw_sample(Random random, const ClickOptions& options, const ClickModel& model,
                 double* features) {
  for (std::int64_t i = 0; i < options.dense; ++i) features[i] = draw_normal(random);
  for (std::int64_t field = 0; field < options.fields; ++field) {
    const std::int64_t first = options.rows * field / options.fields;
    const std::int64_t end = options.rows * (field + 1) / options.fields;
    features[options.dense + field] = static_cast<double>(first + draw_rank(random, end - first));
  }
  return random.unit() < 1 / (1 + std::exp(-model.logit(features)));
}

}  // namespace

ClickData make_clicks(Split split, const ClickOptions& options) {
  if (options.fields < 1 || options.rows < options.fields) {
    refuse("data.rows is {}, and data.fields {}: each categorical field needs an id", options.rows,
           options.fields);
  }
  const bool trains = split == Split::train;
  const std::int64_t count = trains ? options.samples : (options.samples + 3) / 4;
  const std::int64_t width = options.dense + options.fields;
  ClickData data{.features = torch::empty({count, width}, torch::kFloat64),
                 .clicks = torch::empty({count}, torch::kInt64)};
  auto* const features = data.features.data_ptr<double>();
  auto* const clicks = data.clicks.data_ptr<std::int64_t>();
  const ClickModel model(options);
  const std::uint64_t stream = trains ? kTrainSamples : kTestSamples;
  for (std::int64_t i = 0; i < count; ++i) {
    const Random random(mixed_seed({options.seed, stream, static_cast<std::uint64_t>(i)}));
    clicks[i] = draw_sample(random, options, model, features + i * width) ? 1 : 0;
  }
  return data;
}

Batch ClickData::batch(const SampledBatch& sampled) const {
  const torch::NoGradGuard no_grad;
  const auto index = torch::tensor(sampled.samples, torch::kInt64);
  return {.inputs = features.index_select(0, index),
          .targets = clicks.index_select(0, index),
          .own = sampled.own};
}

}  // namespace gradwire
