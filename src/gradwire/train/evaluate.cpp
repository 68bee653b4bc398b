#include "gradwire/train/evaluate.h"

#include "gradwire/data/sampler.h"
#include "gradwire/train/amp.h"

namespace gradwire {
namespace {

constexpr std::int64_t kBatch = 250;

Sampler sampler_for(const DataSet& data, const c10d::ProcessGroup& group) {
  return Sampler({.samples = data.size,
                  .batch_size = kBatch,
                  .rank = group.getRank(),
                  .world_size = group.getSize(),
                  .shuffle = false,
                  .uneven = UnevenBatch::pad});
}

}  // namespace

Evaluation evaluate(torch::nn::Sequential& model, const DataSet& data, c10d::ProcessGroup& group,
                    Precision precision) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(precision);
  const bool training = model->is_training();
  model->eval();
  const auto sampler = sampler_for(data, group);
  double images = 0;
  double correct = 0;
  double loss = 0;
  for (std::int64_t step = 0; step < sampler.batches(); ++step) {
    auto sampled = sampler.batch(step);
    if (sampled.own == 0) continue;
    sampled.samples.resize(static_cast<std::size_t>(sampled.own));
    const auto batch = data.batch(sampled);
    const auto output = model->forward(batch.inputs).to(torch::kFloat);
    images += static_cast<double>(batch.targets.numel());
    correct += output.argmax(1).eq(batch.targets).sum().item<double>();
    loss += torch::nll_loss_nd(output, batch.targets, {}, at::Reduction::Sum).item<double>();
  }
  model->train(training);
  const auto sums = sum_over_ranks(group, {images, correct, loss});
  return {.images = static_cast<std::int64_t>(sums[0]),
          .accuracy = sums[1] / sums[0],
          .loss = sums[2] / sums[0]};
}

}  // namespace gradwire
