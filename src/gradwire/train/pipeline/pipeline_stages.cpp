#include "gradwire/train/pipeline/pipeline_stages.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {
namespace {

using pipeline::Compute;
using pipeline::Message;

/// A seed for a layer's random numbers, equal in every cut.
std::uint64_t seed_of(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                      std::size_t layer) {
  for (const std::uint64_t part : {static_cast<std::uint64_t>(step),
                                   static_cast<std::uint64_t>(sample), std::uint64_t{layer}}) {
    seed = Random(seed + part).next();
  }
  return seed;
}

/// Keeps the caller's random numbers.
class KeepRandomState {
 public:
  KeepRandomState() : state_(random_state()) {}
  ~KeepRandomState() { set_random_state(state_); }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  torch::Tensor state_;
};

/// Restores a module's buffers, such as batch norm's statistics, which a second forward of the same
/// micro-batch would change again. Their counters of changes stay: the graph is not affected.
class KeepBuffers {
 public:
  explicit KeepBuffers(const torch::nn::Module& module) : buffers_(all_buffers(module)) {
    for (const auto& [name, buffer] : buffers_) before_.push_back(buffer.detach().clone());
  }
  ~KeepBuffers() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      buffers_[i].tensor.variable_data().copy_(before_[i]);
    }
  }
  KeepBuffers(const KeepBuffers&) = delete;
  KeepBuffers& operator=(const KeepBuffers&) = delete;

 private:
  std::vector<NamedTensor> buffers_;
  std::vector<torch::Tensor> before_;
};

}  // namespace

torch::Tensor BoundaryShape::empty(std::int64_t samples) const {
  std::vector<std::int64_t> all{samples};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return torch::empty(all, type);
}

MicroBatches micro_batches_of(std::int64_t samples, int parts, const torch::Tensor& inputs,
                              const torch::Tensor& targets) {
  MicroBatches all;
  std::int64_t first = 0;
  for (int i = 0; i < parts; ++i) {
    const std::int64_t size = samples / parts + (i < samples % parts ? 1 : 0);
    all.samples.push_back(size);
    all.first.push_back(first);
    if (inputs.defined()) all.inputs.push_back(inputs.narrow(0, first, size));
    if (targets.defined()) all.targets.push_back(targets.narrow(0, first, size));
    first += size;
  }
  return all;
}

std::vector<MicroBatches> one_by_one(const MicroBatches& batch) {
  std::vector<MicroBatches> all;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    MicroBatches& one = all.emplace_back();
    one.samples = {batch.samples[i]};
    one.first = {batch.first[i]};
    if (!batch.inputs.empty()) one.inputs = {batch.inputs[i]};
    if (!batch.targets.empty()) one.targets = {batch.targets[i]};
  }
  return all;
}

PipelineStages::PipelineStages(const std::vector<LocalStage>& stages,
                               const std::vector<BoundaryShape>& boundaries, int all_stages,
                               Options options)
    : stages_(stages),
      boundaries_(boundaries),
      all_stages_(all_stages),
      options_(std::move(options)),
      forward_codec_(options_.codecs.forward),
      backward_codec_(options_.codecs.backward) {}

void PipelineStages::begin(const pipeline::PipelineRunner& runner, std::vector<Step> steps,
                           std::int64_t next_samples) {
  keep_promise(runner, steps);
  if (schedule_ != &runner.schedule()) steps_.clear();  // The runner before has finished.
  schedule_ = &runner.schedule();
  loss_ = {};
  outputs_.clear();
  std::int64_t number = runner.steps();
  steps_.erase(steps_.begin(), steps_.lower_bound(number - max_delay(*schedule_)));
  for (Step& step : steps) steps_[number++] = std::move(step);
  promised_ = next_samples;
  if (promised_ < 0) return;
  steps_[number].batch = micro_batches_of(promised_, schedule_->micro_batches, {}, {});
}

void PipelineStages::keep_promise(const pipeline::PipelineRunner& runner,
                                  const std::vector<Step>& steps) {
  if (promised_ < 0) return;
  const std::int64_t samples = steps.front().batch.all_samples();
  const bool other_run = schedule_ != &runner.schedule();
  if (!other_run && promised_ == samples) return;
  refuse("a step with {} samples{}, but the last one promised {} to train on", samples,
         other_run ? " of another schedule" : "", promised_);
}

const LocalStage& PipelineStages::local(pipeline::Stage stage) const {
  return *std::ranges::find(stages_, stage, &LocalStage::stage);
}

torch::Tensor PipelineStages::forward(const LocalStage& stage, const torch::Tensor& input,
                                      std::int64_t first_sample, std::int64_t number) const {
  const KeepRandomState keep;
  stage.update->before_forward();
  const BlockScope scope(stage.update->observer());
  torch::Tensor output = stage.module->forward(input, [&](std::size_t layer) {
    set_random_seed(seed_of(options_.seed, number, first_sample, stage.first_layer + layer));
  });
  stage.update->after_forward(output);
  return output;
}

std::optional<LentSpan> PipelineStages::receive_buffer(const Message& message, std::int64_t step) {
  if (!steps_.contains(step)) return std::nullopt;  // The size of its batch is not known.
  const torch::Tensor plain = empty_for(message, step);
  const ActivationCodec* const codec = codec_of(message);
  const torch::Tensor& tensor = put(message, step, codec ? codec->buffer(plain.numel()) : plain);
  return lend_bytes(tensor, {.operation = "pipeline", .argument = "activation"});
}

void PipelineStages::compute(const pipeline::Task& task, std::int64_t step) {
  StageWeights* const weights = schedule_->trains ? local(task.stage).update->weights() : nullptr;
  if (weights) weights->begin(task, step);
  if (task.compute == Compute::forward) {
    compute_forward(task, step);
  } else {
    compute_backward(task, step);
  }
  if (weights) weights->end(task, step);
}

void PipelineStages::compute_forward(const pipeline::Task& task, std::int64_t step) {
  const auto i = static_cast<std::size_t>(task.micro_batch);
  const Step& current = steps_.at(step);
  const bool first = task.stage == 0;
  torch::Tensor input =
      first ? current.batch.inputs[i] : take({task.stage - 1, task.stage, task.micro_batch}, step);
  const bool trains = schedule_->trains;
  const bool records = trains && !options_.recompute;
  if (records && !first) input.requires_grad_();
  const c10::AutoGradMode grad_mode(records);
  const std::int64_t version = input._version();
  const torch::Tensor output = forward(task, input, current, /*counts=*/true);
  if (!is_last(task.stage)) {
    put({task.stage, task.stage + 1, task.micro_batch}, step, output.detach());
  } else if (!trains) {
    outputs_.push_back(output);
  }
  const Place place{step, task.stage, task.micro_batch};
  if (records) backwards_.emplace(place, SplitBackward(output, first ? torch::Tensor() : input));
  if (trains && !records) keep_input(place, input, version);
}

/// `version`: of the input before the forward.
void PipelineStages::keep_input(const Place& place, const torch::Tensor& input,
                                std::int64_t version) {
  if (input._version() != version) {
    refuse(
        "the first layer of stage {} changes its input in place, from which the stage is "
        "recomputed: use a layer that does not",
        std::get<1>(place));
  }
  inputs_[place] = input;
}

/// Returns the output of the task's stage; of the last stage in training, the micro-batch's part of
/// the mean loss over the batch. `counts`: adds to loss().
torch::Tensor PipelineStages::forward(const pipeline::Task& task, const torch::Tensor& input,
                                      const Step& step, bool counts) {
  const auto i = static_cast<std::size_t>(task.micro_batch);
  const torch::Tensor output = forward(local(task.stage), input, step.batch.first[i], step.number);
  if (!is_last(task.stage) || !schedule_->trains) return output;
  const torch::Tensor& target = step.batch.targets[i];
  const torch::Tensor sum = options_.loss.sum(output, target);
  if (sum.dim() != 0)
    refuse("the loss must return a scalar, the sum; it has {} dimensions", sum.dim());
  if (counts) {
    loss_.sum += sum.item<double>();
    loss_.count += options_.loss.count(target);
  }
  return sum / step.count();
}

/// The backward of the task's forward, which is computed again if only its input was kept.
SplitBackward& PipelineStages::backward_of(const pipeline::Task& task, std::int64_t step) {
  const Place place{step, task.stage, task.micro_batch};
  const auto kept = inputs_.extract(place);
  if (!kept) return backwards_.at(place);
  torch::Tensor input = kept.mapped();
  const bool first = task.stage == 0;
  if (!first) input.requires_grad_();
  const KeepBuffers buffers(*local(task.stage).module);
  const c10::AutoGradMode grad_mode(true);
  const torch::Tensor output = forward(task, input, steps_.at(step), /*counts=*/false);
  return backwards_.emplace(place, SplitBackward(output, first ? torch::Tensor() : input))
      .first->second;
}

void PipelineStages::compute_backward(const pipeline::Task& task, std::int64_t step) {
  SplitBackward& backward = backward_of(task, step);
  StageUpdate& update = *local(task.stage).update;
  update.before_backward(task.micro_batch + 1 == schedule_->micro_batches);
  if (task.compute == Compute::backward_weight) {
    if (update.splits_backward()) backward.weights();
    backwards_.erase({step, task.stage, task.micro_batch});
    return;
  }
  const torch::Tensor gradient = is_last(task.stage)
                                     ? torch::ones({})
                                     : take({task.stage + 1, task.stage, task.micro_batch}, step);
  const bool whole = task.compute == Compute::backward;
  const torch::Tensor result =
      whole || !update.splits_backward() ? backward.all(gradient) : backward.inputs(gradient);
  if (whole) backwards_.erase({step, task.stage, task.micro_batch});
  if (task.stage == 0) return;
  const Message back{task.stage, task.stage - 1, task.micro_batch};
  put(back, step, result.defined() ? result : empty_for(back, step).zero_());
}

torch::Tensor& PipelineStages::put(const Message& message, std::int64_t step,
                                   const torch::Tensor& tensor) {
  return tensors_[{message, step}] = tensor.contiguous();
}

const ActivationCodec* PipelineStages::codec_of(const Message& message) const {
  const ActivationCodec& codec = message.is_gradient() ? backward_codec_ : forward_codec_;
  const auto rank_of = [&](pipeline::Stage s) {
    return schedule_->rank_of[static_cast<std::size_t>(s)];
  };
  const bool stays = rank_of(message.from) == rank_of(message.to);
  return schedule_->trains && codec.encodes() && !stays ? &codec : nullptr;
}

/// As a layer's seed, for layers that no model has.
std::uint64_t PipelineStages::codec_seed(const Message& message, std::int64_t step) const {
  constexpr std::size_t kFirst = std::size_t{1} << 32;
  const Step& current = steps_.at(step);
  return seed_of(options_.seed, current.number,
                 current.batch.first[static_cast<std::size_t>(message.micro_batch)],
                 kFirst + static_cast<std::size_t>(2 * message.to + message.is_gradient()));
}

/// Memory for what a message carries. A gradient has the shape of the activation.
torch::Tensor PipelineStages::empty_for(const Message& message, std::int64_t step) const {
  const auto boundary = static_cast<std::size_t>(std::max(message.from, message.to));
  const MicroBatches& batch = steps_.at(step).batch;
  return boundaries_[boundary].empty(batch.samples[static_cast<std::size_t>(message.micro_batch)]);
}

torch::Tensor PipelineStages::take(const Message& message, std::int64_t step) {
  torch::Tensor tensor = std::move(tensors_.extract({message, step}).mapped());
  const ActivationCodec* const codec = codec_of(message);
  if (!codec) return tensor;
  torch::Tensor decoded = empty_for(message, step);
  codec->decode(tensor, codec_seed(message, step), decoded);
  return decoded;
}

LentConstSpan PipelineStages::output(const Message& message, std::int64_t step) {
  torch::Tensor& tensor = tensors_.at({message, step});
  const auto boundary = static_cast<std::size_t>(std::max(message.from, message.to));
  const BoundaryShape& shape = boundaries_[boundary];
  if (tensor.sizes().slice(1) != shape.sizes || tensor.scalar_type() != shape.type) {
    refuse(
        "stage {} sends [{}] per sample, but [{}] at first: what passes between stages must "
        "have the same shape and type in every step",
        message.from, fmt::join(tensor.sizes().slice(1), ", "), fmt::join(shape.sizes, ", "));
  }
  if (const auto* codec = codec_of(message)) {
    tensor = codec->encode(tensor, codec_seed(message, step));
  }
  return lend_bytes(tensor, {.operation = "pipeline", .argument = "activation"});
}

void PipelineStages::sent(const Message& message, std::int64_t step) {
  tensors_.erase({message, step});
}

void PipelineStages::update(pipeline::Stage stage, std::int64_t step) {
  const LocalStage& own = local(stage);
  if (options_.step_at_once && !own.is_tied) own.update->step(steps_.at(step).before, 1);
}

}  // namespace gradwire
