#include "gradwire/recipe/evaluate.h"

#include <algorithm>

#include "gradwire/data/sampler.h"
#include "gradwire/train/optim/amp.h"

namespace gradwire::recipe {
namespace {

Sampler sampler_for(const DataSet& data, std::int64_t batch_size, const c10d::ProcessGroup& group) {
  return Sampler({.samples = data.size,
                  .batch_size = batch_size,
                  .rank = group.getRank(),
                  .world_size = group.getSize(),
                  .shuffle = false,
                  .uneven = UnevenBatch::pad});
}

}  // namespace

Evaluation evaluate(torch::nn::Module& module, const Classifier& forward, const DataSet& data,
                    std::int64_t batch_size, c10d::ProcessGroup& group, Precision precision) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(precision);
  const bool training = module.is_training();
  module.eval();
  const auto sampler = sampler_for(data, batch_size, group);
  double images = 0;
  double correct = 0;
  double loss = 0;
  for (std::int64_t step = 0; step < sampler.batches(); ++step) {
    auto sampled = sampler.batch(step);
    // This rank may have no sample of the last batch, but other ranks need its shards of the model.
    sampled.samples.resize(static_cast<std::size_t>(std::max<std::int64_t>(sampled.own, 1)));
    const auto batch = data.batch(sampled);
    const auto output = forward(batch.inputs).to(torch::kFloat);
    if (sampled.own == 0) continue;
    images += static_cast<double>(batch.targets.numel());
    correct += output.argmax(1).eq(batch.targets).sum().item<double>();
    loss += torch::nll_loss_nd(output, batch.targets, {}, at::Reduction::Sum).item<double>();
  }
  module.train(training);
  const auto sums = sum_over_ranks(group, {images, correct, loss});
  return {.images = static_cast<std::int64_t>(sums[0]),
          .accuracy = sums[1] / sums[0],
          .loss = sums[2] / sums[0]};
}

}  // namespace gradwire::recipe
