#include "gradwire/train/pipeline/pipeline_stages.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/activation/activation_checkpoint.h"

namespace gradwire {
namespace {

using pipeline::Compute;
using pipeline::Message;

/// A seed for a layer's random numbers, equal in every cut.
std::uint64_t seed_of(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                      std::size_t layer) {
  return mixed_seed(
      {seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(sample), layer});
}

/// Keeps the caller's random numbers, those of the host and of a device.
class KeepRandomState {
 public:
  explicit KeepRandomState(c10::Device device) : device_(device), host_(random_state()) {
    if (!device.is_cpu()) on_device_ = random_state(device);
  }
  ~KeepRandomState() {
    set_random_state(host_);
    if (on_device_.defined()) set_random_state(on_device_, device_);
  }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  c10::Device device_;
  torch::Tensor host_, on_device_;
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

std::vector<torch::Tensor> tensors_of(const StageValues& values) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [value, tensor] : values) tensors.push_back(tensor);
  return tensors;
}

std::vector<torch::Tensor> in_order(const StageValues& values,
                                    const std::vector<StageValue>& order) {
  std::vector<torch::Tensor> tensors;
  for (const StageValue value : order) tensors.push_back(values.at(value));
  return tensors;
}

void move_to(c10::Device device, StageValues& values) {
  for (auto& [value, tensor] : values) tensor = tensor.to(device);
}

void require_gradients(const StageValues& values) {
  for (const auto& [value, tensor] : values) tensor.requires_grad_();
}

std::vector<std::int64_t> versions_of(const StageValues& values) {
  std::vector<std::int64_t> versions;
  for (const auto& [value, tensor] : values) versions.push_back(tensor._version());
  return versions;
}

}  // namespace

c10::Device device_of(const StageModule& module) {
  std::optional<NamedTensor> first;
  for (const auto& tensors : {all_parameters(module), all_buffers(module)}) {
    for (const NamedTensor& each : tensors) {
      if (!first) first = each;
      if (each.tensor.device() == first->tensor.device()) continue;
      refuse("{} is on {}, but {} on {}: move all layers of a stage to one device", first->name,
             first->tensor.device().str(), each.name, each.tensor.device().str());
    }
  }
  return first ? first->tensor.device() : c10::Device(torch::kCPU);
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

PipelineStages::PipelineStages(const std::vector<LocalStage>& stages, const StageEdges& edges,
                               const EdgeShapes& shapes, int all_stages, Options options)
    : stages_(stages),
      edges_(edges),
      shapes_(shapes),
      all_stages_(all_stages),
      options_(std::move(options)),
      forward_codecs_(codecs_of(options_.codecs.forward, all_stages - 1)),
      backward_codecs_(codecs_of(options_.codecs.backward, all_stages - 1)) {}

void PipelineStages::begin(const pipeline::PipelineRunner& runner, std::vector<Step> steps,
                           std::int64_t next_samples) {
  check_announced(runner, steps);
  if (schedule_ != &runner.schedule()) steps_.clear();  // The runner before has finished.
  schedule_ = &runner.schedule();
  loss_ = {};
  outputs_.clear();
  std::int64_t number = runner.steps();
  steps_.erase(steps_.begin(), steps_.lower_bound(number - max_delay(*schedule_)));
  for (Step& step : steps) steps_[number++] = std::move(step);
  announced_ = next_samples;
  if (announced_ < 0) return;
  steps_[number].batch = micro_batches_of(announced_, schedule_->micro_batches, {}, {});
}

void PipelineStages::check_announced(const pipeline::PipelineRunner& runner,
                                     const std::vector<Step>& steps) {
  if (announced_ < 0) return;
  const std::int64_t samples = steps.front().batch.all_samples();
  const bool other_run = schedule_ != &runner.schedule();
  if (!other_run && announced_ == samples) return;
  refuse(
      "{} got {} samples{}, but the previous train_step announced next_samples = {}: announce the "
      "next batch, or pass next_samples = -1",
      runner.schedule().trains ? "train_step" : "evaluate", samples,
      other_run ? " for another schedule" : "", announced_);
}

const LocalStage& PipelineStages::local(pipeline::Stage stage) const {
  return *std::ranges::find(stages_, stage, &LocalStage::stage);
}

StageValues PipelineStages::forward(const LocalStage& stage, StageValues inputs,
                                    std::int64_t first_sample, std::int64_t number) const {
  const KeepRandomState keep(stage.device);
  stage.update->before_forward();
  const BlockScope scope(stage.update->observer());
  move_to(stage.device, inputs);
  StageValues outputs = stage.module->forward(std::move(inputs), [&](std::size_t layer) {
    const auto seed = seed_of(options_.seed, number, first_sample, stage.first_layer + layer);
    set_random_seed(seed);
    if (!stage.device.is_cpu()) set_random_seed(seed, stage.device);
  });
  stage.update->after_forward(tensors_of(outputs));
  return outputs;
}

std::optional<LentSpan> PipelineStages::receive_buffer(const Message& message, std::int64_t step) {
  if (!steps_.contains(step)) return std::nullopt;  // The size of its batch is not known.
  torch::Tensor buffer = empty_packed(shapes_of(message), samples_of(message, step));
  if (const auto* codec = codec_of(message)) buffer = codec->buffer(buffer.numel());
  tensors_[{message, step}] = {buffer};
  return lend_bytes(buffer, {.operation = "pipeline", .argument = "activation"});
}

std::int64_t PipelineStages::number_of(std::int64_t step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? step : found->second.number;
}

void PipelineStages::compute(const pipeline::Task& task, std::int64_t step) {
  StageWeights* const weights = schedule_->trains ? local(task.stage).update->weights() : nullptr;
  if (weights) weights->begin(task, step);
  compute_task(task, step);
  if (weights) weights->end(task, step);
}

void PipelineStages::compute_task(const pipeline::Task& task, std::int64_t step) {
  const std::string name = options_.trace ? name_of(task) : "";
  const bool is_forward = task.compute == Compute::forward;
  const TraceScope scope(options_.trace, is_forward ? TraceKind::forward : TraceKind::backward,
                         name);
  if (is_forward) {
    compute_forward(task, step);
  } else {
    compute_backward(task, step);
  }
}

/// The inputs of a forward, from earlier stages; of the first stage, the batch.
StageValues PipelineStages::inputs_of(const pipeline::Task& task, std::int64_t step) {
  const auto i = static_cast<std::size_t>(task.micro_batch);
  if (task.stage == 0) return {{kPassing, steps_.at(step).batch.inputs[i]}};
  StageValues inputs;
  for (const auto& [edge, values] : edges_.into(task.stage)) {
    const auto tensors = take({edge.first, edge.second, task.micro_batch}, step);
    for (std::size_t v = 0; v < values.size(); ++v) inputs[values[v]] = tensors[v];
  }
  return inputs;
}

void PipelineStages::send_on(const pipeline::Task& task, std::int64_t step,
                             const StageValues& outputs) {
  for (const auto& [edge, values] : edges_.out_of(task.stage)) {
    std::vector<torch::Tensor> tensors;
    for (const StageValue value : values) tensors.push_back(outputs.at(value).detach());
    put({edge.first, edge.second, task.micro_batch}, step, tensors);
  }
}

void PipelineStages::compute_forward(const pipeline::Task& task, std::int64_t step) {
  const Step& current = steps_.at(step);
  const StageValues inputs = inputs_of(task, step);
  const bool trains = schedule_->trains;
  const bool records = trains && !options_.recompute;
  if (records && task.stage > 0) require_gradients(inputs);
  const c10::AutoGradMode grad_mode(records);
  const std::vector<std::int64_t> versions = versions_of(inputs);
  const StageValues outputs = forward(task, inputs, current, /*counts=*/true);
  if (is_last(task.stage) && !trains) outputs_.push_back(outputs.at(kPassing));
  send_on(task, step, outputs);
  const Place place{step, task.stage, task.micro_batch};
  if (records) start_backward(place, inputs, outputs);
  if (trains && !records) keep_inputs(place, inputs, versions);
}

void PipelineStages::start_backward(const Place& place, const StageValues& inputs,
                                    const StageValues& outputs) {
  const pipeline::Stage stage = std::get<1>(place);
  SplitBackward backward(in_order(outputs, edges_.outputs_of(stage)),
                         stage == 0 ? std::vector<torch::Tensor>() : tensors_of(inputs));
  if (!options_.other_weights.empty() && backward.has_checkpoint()) {
    refuse(
        "stage {} has an activation checkpoint, which needs a backward with the weights of its "
        "forward, but weights {} use others: use stash or 2bw, or no checkpoints",
        stage, options_.other_weights);
  }
  backwards_.emplace(place, std::move(backward));
}

/// `versions`: of the inputs before the forward.
void PipelineStages::keep_inputs(const Place& place, const StageValues& inputs,
                                 const std::vector<std::int64_t>& versions) {
  if (versions_of(inputs) != versions) {
    refuse(
        "the first layer of stage {} changes its input in place, from which the stage is "
        "recomputed: use a layer that does not",
        std::get<1>(place));
  }
  inputs_[place] = inputs;
}

/// Returns the outputs of the task's stage; of the last stage in training, the micro-batch's part
/// of the mean loss over the batch. `counts`: adds to loss().
StageValues PipelineStages::forward(const pipeline::Task& task, const StageValues& inputs,
                                    const Step& step, bool counts) {
  const auto i = static_cast<std::size_t>(task.micro_batch);
  const std::int64_t first_sample = step.samples_before + step.batch.first[i];
  StageValues outputs = forward(local(task.stage), inputs, first_sample, step.number);
  if (!is_last(task.stage) || !schedule_->trains) return outputs;
  const torch::Tensor& target = step.batch.targets[i];
  torch::Tensor& output = outputs.at(kPassing);
  const torch::Tensor sum = options_.loss.sum(output, target.to(output.device()));
  if (sum.dim() != 0)
    refuse("the loss must return a scalar, the sum; it has {} dimensions", sum.dim());
  if (counts) {
    loss_.sum += sum.item<double>();
    loss_.count += options_.loss.count(target);
  }
  output = sum / step.count();
  return outputs;
}

/// The backward of the task's forward, which is computed again if only its inputs were kept.
SplitBackward& PipelineStages::backward_of(const pipeline::Task& task, std::int64_t step) {
  const Place place{step, task.stage, task.micro_batch};
  const auto kept = inputs_.extract(place);
  if (!kept) return backwards_.at(place);
  const StageValues& inputs = kept.mapped();
  if (task.stage > 0) require_gradients(inputs);
  const KeepBuffers buffers(*local(task.stage).module);
  const c10::AutoGradMode grad_mode(true);
  start_backward(place, inputs, forward(task, inputs, steps_.at(step), /*counts=*/false));
  return backwards_.at(place);
}

/// The gradient of each output of the stage, in the order of StageEdges::outputs_of().
std::vector<torch::Tensor> PipelineStages::output_gradients(const pipeline::Task& task,
                                                            std::int64_t step) {
  const c10::Device device = local(task.stage).device;
  if (is_last(task.stage)) return {torch::ones({}, device)};
  StageValues gradients;
  for (const auto& [edge, values] : edges_.out_of(task.stage)) {
    const auto tensors = take({edge.second, edge.first, task.micro_batch}, step);
    for (std::size_t v = 0; v < values.size(); ++v) gradients[values[v]] = tensors[v];
  }
  move_to(device, gradients);
  return in_order(gradients, edges_.outputs_of(task.stage));
}

/// `gradients`: of each input of the stage, in the order of StageValues.
void PipelineStages::send_back(const pipeline::Task& task, std::int64_t step,
                               const std::vector<torch::Tensor>& gradients) {
  const std::vector<StageEdge> edges = edges_.into(task.stage);
  StageValues by_value;
  for (const StageEdge& edge : edges) {
    for (const StageValue value : edge.values) by_value[value];
  }
  auto next = gradients.begin();
  for (auto& [value, gradient] : by_value) gradient = *next++;
  for (const auto& [edge, values] : edges) {
    const Message back{edge.second, edge.first, task.micro_batch};
    std::vector<torch::Tensor> tensors;
    for (const StageValue value : values) {
      const torch::Tensor& gradient = by_value.at(value);
      const BoundaryShape& shape = shapes_of(back)[tensors.size()];
      tensors.push_back(gradient.defined() ? gradient
                                           : shape.empty(samples_of(back, step)).zero_());
    }
    put(back, step, tensors);
  }
}

/// Adds the gradients of weights that the first part of a backward left.
void PipelineStages::complete_backward(const Place& place) {
  const auto& [step, stage, micro_batch] = place;
  SplitBackward& backward = backwards_.at(place);
  if (backward.is_done()) return;
  local(stage).update->before_backward(micro_batch + 1 == schedule_->micro_batches);
  backward.weights();
}

void PipelineStages::compute_backward(const pipeline::Task& task, std::int64_t step) {
  const Place place{step, task.stage, task.micro_batch};
  if (task.compute == Compute::backward_weight) {
    complete_backward(place);
    backwards_.erase(place);
    return;
  }
  SplitBackward& backward = backward_of(task, step);
  StageUpdate& update = *local(task.stage).update;
  const auto gradients = output_gradients(task, step);
  const bool is_last_part = task.compute == Compute::backward;
  const bool is_whole = is_last_part || !update.splits_backward() || backward.is_whole();
  if (is_whole) {
    // Gradients of weights are added in the order of the micro-batches.
    const auto end = backwards_.find(place);
    for (auto each = backwards_.lower_bound({step, task.stage, 0}); each != end; ++each) {
      complete_backward(each->first);
    }
  }
  update.before_backward(task.micro_batch + 1 == schedule_->micro_batches);
  const auto results = is_whole ? backward.all(gradients) : backward.inputs(gradients);
  if (is_last_part) backwards_.erase(place);
  if (task.stage > 0) send_back(task, step, results);
}

/// Returns true if both stages are on this rank.
bool PipelineStages::stays(const Message& message) const {
  const auto rank_of = [&](pipeline::Stage s) {
    return schedule_->rank_of[static_cast<std::size_t>(s)];
  };
  return rank_of(message.from) == rank_of(message.to);
}

const ActivationCodec* PipelineStages::codec_of(const Message& message) const {
  const auto boundary = static_cast<std::size_t>(std::max(message.from, message.to) - 1);
  const auto& codecs = message.is_gradient() ? backward_codecs_ : forward_codecs_;
  const ActivationCodec& codec = codecs[boundary];
  return schedule_->trains && codec.encodes() && !stays(message) ? &codec : nullptr;
}

/// Derives the codec's seed like a layer's, from an index beyond all layers.
std::uint64_t PipelineStages::codec_seed(const Message& message, std::int64_t step) const {
  constexpr std::size_t kFirst = std::size_t{1} << 32;
  const Step& current = steps_.at(step);
  const auto edge = static_cast<std::size_t>(message.from * all_stages_ + message.to);
  const auto first = current.batch.first[static_cast<std::size_t>(message.micro_batch)];
  return seed_of(options_.seed, current.number, current.samples_before + first, kFirst + edge);
}

/// A gradient has the shape of the activation.
const std::vector<BoundaryShape>& PipelineStages::shapes_of(const Message& message) const {
  return shapes_.at(std::minmax(message.from, message.to));
}

std::int64_t PipelineStages::samples_of(const Message& message, std::int64_t step) const {
  return steps_.at(step).batch.samples[static_cast<std::size_t>(message.micro_batch)];
}

void PipelineStages::check_shapes(const Message& message,
                                  const std::vector<torch::Tensor>& tensors) const {
  const std::vector<BoundaryShape>& shapes = shapes_of(message);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto sizes = tensors[i].sizes().slice(1);
    if (sizes == shapes[i].sizes && tensors[i].scalar_type() == shapes[i].type) continue;
    refuse(
        "stage {} sends [{}] per sample, but [{}] at first: what passes between stages must "
        "have the same shape and type in every step",
        message.from, fmt::join(sizes, ", "), fmt::join(shapes[i].sizes, ", "));
  }
}

void PipelineStages::put(const Message& message, std::int64_t step,
                         const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor>& stored = tensors_[{message, step}];
  stored.clear();
  if (stays(message)) {
    for (const torch::Tensor& tensor : tensors) stored.push_back(tensor.contiguous());
    return;
  }
  check_shapes(message, tensors);
  std::vector<torch::Tensor> on_host;
  for (const torch::Tensor& tensor : tensors) on_host.push_back(tensor.cpu());
  stored.push_back(packed(on_host));
}

std::vector<torch::Tensor> PipelineStages::take(const Message& message, std::int64_t step) {
  std::vector<torch::Tensor> tensors = std::move(tensors_.extract({message, step}).mapped());
  if (stays(message)) return tensors;
  torch::Tensor tensor = tensors.front();
  if (const auto* codec = codec_of(message)) {
    torch::Tensor decoded = empty_packed(shapes_of(message), samples_of(message, step));
    codec->decode(tensor, codec_seed(message, step), decoded);
    tensor = decoded;
  }
  return unpacked(tensor, shapes_of(message), samples_of(message, step));
}

LentConstSpan PipelineStages::output(const Message& message, std::int64_t step) {
  torch::Tensor& tensor = tensors_.at({message, step}).front();
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
