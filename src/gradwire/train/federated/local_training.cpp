#include "gradwire/train/federated/local_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"

namespace gradwire {
namespace {

/// Samples of which the outputs are in memory at a time.
constexpr std::int64_t kEvaluationBatch = 500;

/// The order of `count` samples in an epoch.
torch::Tensor shuffled(std::int64_t count, std::uint64_t seed) {
  torch::Tensor order = torch::arange(count, torch::kInt64);
  auto* const indices = order.mutable_data_ptr<std::int64_t>();
  Random random(seed);
  for (std::int64_t i = count - 1; i > 0; --i)
    std::swap(indices[i], indices[random.below(static_cast<std::uint64_t>(i) + 1)]);
  return order;
}

std::uint64_t seed_of(std::uint64_t seed, const federated::LocalWork& work, std::int64_t part) {
  return mixed_seed({seed, static_cast<std::uint64_t>(work.round),
                     static_cast<std::uint64_t>(work.client), static_cast<std::uint64_t>(part)});
}

/// The rate of an optimizer that adds -rate * gradient and nothing else; 0 for others.
double plain_rate(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) == nullptr) return 0;
  if (optimizer.param_groups().size() != 1) return 0;
  const auto& options =
      static_cast<const torch::optim::SGDOptions&>(optimizer.param_groups()[0].options());
  return options.momentum() == 0 && options.weight_decay() == 0 ? options.lr() : 0;
}

}  // namespace

LocalTraining::LocalTraining(TrainableModule module, const DataSet& data, const HeldOut& clients,
                             const LocalTrainingOptions& options)
    : module_(std::move(module)), data_(data), clients_(clients), options_(options) {
  FederatedTensors all = federated_tensors(*module_.module);
  std::int64_t elements = 0;
  for (const auto* list : {&all.parameters, &all.averaged}) {
    for (const NamedTensor& one : *list) {
      tensors_.push_back(one.tensor);
      elements += one.tensor.numel();
    }
  }
  named_ = std::move(all.parameters);
  for (const NamedTensor& one : named_) parameters_.push_back(one.tensor);
  global_values_ = torch::empty({elements});
  update_ = torch::empty({elements});
  std::int64_t begin = 0;
  for (const torch::Tensor& tensor : parameters_) {
    global_.push_back(global_values_.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  optimizer_ = options_.optimizer(named_);
  plain_rate_ = plain_rate(*optimizer_);
}

void LocalTraining::set_model(std::span<const float> model) {
  const torch::NoGradGuard no_grad;
  GRADWIRE_CHECK(std::ssize(model) == global_values_.numel());
  std::memcpy(global_values_.mutable_data_ptr<float>(), model.data(), model.size_bytes());
  std::int64_t begin = 0;
  for (const torch::Tensor& tensor : tensors_) {
    const auto to = tensor.detach();
    to.copy_(global_values_.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

std::int64_t LocalTraining::steps_of(std::int64_t samples, double epochs) const {
  const std::int64_t batch = options_.batch_size > 0 ? options_.batch_size : samples;
  const std::int64_t in_epoch = (samples + batch - 1) / batch;
  constexpr double kRounding = 1e-9;  // Of a number of epochs that was computed from a time.
  return static_cast<std::int64_t>(std::floor(epochs * static_cast<double>(in_epoch) + kRounding));
}

void LocalTraining::descend() {
  if (plain_rate_ == 0) {
    optimizer_->step();
    return;
  }
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : parameters_) {
    const torch::Tensor& gradient = parameter.grad();
    if (gradient.defined()) parameter.detach().sub_(gradient, plain_rate_);
  }
}

void LocalTraining::step_on(const torch::Tensor& inputs, const torch::Tensor& targets,
                            double proximal) {
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  const torch::Tensor loss = module_.loss(module_.forward(inputs), targets);
  loss.backward();
  if (proximal > 0) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      torch::Tensor& gradient = parameters_[i].mutable_grad();
      if (gradient.defined()) gradient.add_(parameters_[i], proximal).sub_(global_[i], proximal);
    }
  }
  descend();
  loss_sum_ += loss.item<double>();
}

federated::LocalResult LocalTraining::train(const federated::LocalWork& work) {
  const std::span<const std::int64_t> own = clients_.train[work.client];
  if (options_.draws_random_numbers) torch::manual_seed(seed_of(options_.seed, work, -1));
  const Evaluated before = evaluate(work.model, clients_.held_out[work.client], data_);
  set_model(work.model);
  module_.module->train();
  if (plain_rate_ == 0) optimizer_ = options_.optimizer(named_);
  const Batch all = data_.batch({{own.begin(), own.end()}, std::ssize(own)});
  const std::int64_t samples = std::ssize(own);
  const std::int64_t batch = options_.batch_size > 0 ? options_.batch_size : samples;
  const std::int64_t steps = steps_of(samples, work.epochs);
  loss_sum_ = 0;
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; step < steps; ++epoch) {
    const torch::Tensor order = shuffled(samples, seed_of(options_.seed, work, epoch));
    for (std::int64_t at = 0; at < samples && step < steps; at += batch, ++step) {
      const torch::Tensor rows = order.narrow(0, at, std::min(batch, samples - at));
      step_on(all.inputs.index_select(0, rows), all.targets.index_select(0, rows), work.proximal);
    }
  }
  const torch::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (const torch::Tensor& tensor : tensors_) {
    update_.narrow(0, begin, tensor.numel()).copy_(tensor.detach().reshape({-1}));
    begin += tensor.numel();
  }
  update_.sub_(global_values_);
  return {.update = {update_.const_data_ptr<float>(), static_cast<std::size_t>(update_.numel())},
          .steps = steps,
          .training_loss = steps > 0 ? loss_sum_ / static_cast<double>(steps) : 0,
          .evaluated = before.samples,
          .correct = before.correct,
          .loss = before.loss};
}

LocalTraining::Evaluated LocalTraining::evaluate(std::span<const float> model,
                                                 std::span<const std::int64_t> samples,
                                                 const DataSet& data) {
  Evaluated result;
  if (samples.empty()) return result;
  const torch::NoGradGuard no_grad;
  set_model(model);
  module_.module->eval();
  for (std::size_t at = 0; at < samples.size(); at += kEvaluationBatch) {
    const auto part =
        samples.subspan(at, std::min<std::size_t>(kEvaluationBatch, samples.size() - at));
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
