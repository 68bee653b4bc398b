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

Evaluation evaluate(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                    const Classifier& forward, const DataSet& data, std::int64_t batch_size,
                    const EvaluationRanks& ranks, Precision precision) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(precision);
  std::vector<bool> training;
  for (const auto& module : modules) {
    training.push_back(module->is_training());
    module->eval();
  }
  const auto sampler = sampler_for(data, batch_size, ranks.data);
  double images = 0;
  double correct = 0;
  double loss = 0;
  for (std::int64_t step = 0; step < sampler.batches(); ++step) {
    auto sampled = sampler.batch(step);
    // This rank may have no sample of the last batch, but other ranks need its shards of the model.
    sampled.samples.resize(static_cast<std::size_t>(std::max<std::int64_t>(sampled.own, 1)));
    const auto batch = data.batch(sampled);
    const auto result = forward(batch.inputs);
    if (sampled.own == 0 || !result.defined()) continue;
    const auto output = result.to(torch::kFloat);
    images += static_cast<double>(batch.targets.numel());
    correct += output.argmax(1).eq(batch.targets).sum().item<double>();
    loss += torch::nll_loss_nd(output, batch.targets, {}, at::Reduction::Sum).item<double>();
  }
  for (std::size_t i = 0; i < modules.size(); ++i) modules[i]->train(training[i]);
  const auto sums = sum_over_ranks(ranks.world, {images, correct, loss});
  return {.images = static_cast<std::int64_t>(sums[0]) / ranks.alike,
          .accuracy = sums[1] / sums[0],
          .loss = sums[2] / sums[0]};
}

}  // namespace gradwire::recipe
