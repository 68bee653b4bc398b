#include "gradwire/train/federated/module_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"
#include "gradwire/train/federated/global_model.h"

namespace gradwire {
namespace {

/// Samples of which the outputs are in memory at a time.
constexpr std::size_t kEvaluationBatch = 500;

/// Read only.
torch::Tensor tensor_of(std::span<const float> values) {
  return torch::from_blob(const_cast<float*>(values.data()), {std::ssize(values)});
}

torch::Tensor indices_of(std::span<const std::int64_t> samples) {
  return torch::from_blob(const_cast<std::int64_t*>(samples.data()), {std::ssize(samples)},
                          torch::kInt64);
}

/// The steps for which a client had time.
std::int64_t steps_in(const LocalPlan& plan, std::int64_t samples, double epochs) {
  constexpr double kRounding = 1e-9;  // The number of epochs was computed from a time.
  const double all = static_cast<double>(steps_of(plan, samples));
  return static_cast<std::int64_t>(
      std::floor(all * epochs / static_cast<double>(plan.epochs) + kRounding));
}

}  // namespace

ModuleTrainer::ModuleTrainer(TrainableModule module, const DataSet& data, const HeldOut& clients,
                             LocalPlan plan, bool one_thread)
    : module_(std::move(module)),
      data_(data),
      clients_(clients),
      training_(*module_.module, std::move(plan)),
      one_thread_(one_thread) {
  std::int64_t elements = training_.flat().numel();
  for (const NamedTensor& buffer : federated_tensors(*module_.module).averaged) {
    buffers_.push_back(buffer.tensor);
    elements += buffer.tensor.numel();
  }
  update_ = torch::empty({elements});
}

void ModuleTrainer::load(std::span<const float> model) {
  const torch::NoGradGuard no_grad;
  GRADWIRE_CHECK(std::ssize(model) == update_.numel());
  const torch::Tensor values = tensor_of(model);
  std::int64_t begin = training_.flat().numel();
  training_.load(values.narrow(0, 0, begin));
  for (torch::Tensor& buffer : buffers_) {
    buffer.copy_(values.narrow(0, begin, buffer.numel()).view(buffer.sizes()));
    begin += buffer.numel();
  }
}

void ModuleTrainer::take_update(std::span<const float> model) {
  const torch::NoGradGuard no_grad;
  std::int64_t begin = training_.flat().numel();
  update_.narrow(0, 0, begin).copy_(training_.flat());
  for (const torch::Tensor& buffer : buffers_) {
    update_.narrow(0, begin, buffer.numel()).copy_(buffer.reshape({-1}));
    begin += buffer.numel();
  }
  update_.sub_(tensor_of(model));
}

/// With a graph, or with the gradients stored.
torch::Tensor ModuleTrainer::mean_loss(const torch::Tensor& inputs, const torch::Tensor& targets) {
  if (module_.differentiate) return module_.differentiate(inputs, targets);
  return module_.loss(module_.forward(inputs), targets);
}

federated::LocalResult ModuleTrainer::train(const federated::LocalWork& work) {
  if (one_thread_) at::set_num_threads(1);  // Each thread has a setting of its own.
  const std::int64_t part = work.part < 0 ? work.client : work.part;
  const std::span<const std::int64_t> own = clients_.train[part];
  if (module_.draws_random_numbers) {
    torch::manual_seed(mixed_seed({training_.plan().seed, static_cast<std::uint64_t>(work.round),
                                   static_cast<std::uint64_t>(work.client)}));
  }
  const Evaluated before = evaluate(work.model, clients_.held_out[part], data_);
  load(work.model);
  module_.module->train();
  training_.set_proximal(work.proximal);
  const Batch all = data_.batch({{own.begin(), own.end()}, std::ssize(own)});
  const auto loss = [&](std::span<const std::int64_t> samples) {
    if (samples.size() == own.size() && training_.plan().batch_size == 0)
      return mean_loss(all.inputs, all.targets);
    const torch::Tensor rows = indices_of(samples);
    return mean_loss(all.inputs.index_select(0, rows), all.targets.index_select(0, rows));
  };
  const LocalResult done =
      training_.run({.round = work.round,
                     .client = work.client,
                     .samples = std::ssize(own),
                     .max_steps = steps_in(training_.plan(), std::ssize(own), work.epochs),
                     .goes_on = work.goes_on},
                    loss);
  take_update(work.model);
  return {.update = {update_.const_data_ptr<float>(), static_cast<std::size_t>(update_.numel())},
          .steps = done.steps,
          .training_loss = done.mean_loss,
          .evaluated = before.samples,
          .correct = before.correct,
          .loss = before.loss};
}

Evaluated ModuleTrainer::evaluate(std::span<const float> model,
                                  std::span<const std::int64_t> samples, const DataSet& data) {
  Evaluated result;
  if (samples.empty()) return result;
  const torch::NoGradGuard no_grad;
  load(model);
  module_.module->eval();
  for (std::size_t at = 0; at < samples.size(); at += kEvaluationBatch) {
    const auto part = samples.subspan(at, std::min(kEvaluationBatch, samples.size() - at));
    const Batch batch = data.batch({{part.begin(), part.end()}, std::ssize(part)});
    const torch::Tensor outputs = module_.forward(batch.inputs);
    const std::int64_t count = batch.targets.numel();
    result.samples += count;
    result.loss += module_.loss(outputs, batch.targets).item<double>() * static_cast<double>(count);
    result.correct += outputs.argmax(1).eq(batch.targets).sum().item<std::int64_t>();
  }
  return result;
}

}  // namespace gradwire
