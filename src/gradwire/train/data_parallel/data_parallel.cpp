#include "gradwire/train/data_parallel/data_parallel.h"

#include <exception>
#include <unordered_set>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/data_parallel/model_check.h"
#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {
namespace {

std::vector<NamedTensor> concatenated(std::vector<NamedTensor> first,
                                      const std::vector<NamedTensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void check_options(const DataParallelOptions& options) {
  if (!options.process_group) {
    refuse("DataParallel: no process_group; pass {.process_group = gradwire::init()}");
  }
  if (!(options.bucket_cap_mb > 0)) {
    refuse("DataParallel: bucket_cap_mb is {}; it must be positive", options.bucket_cap_mb);
  }
}

ReplicatedStepOptions step_options(const DataParallelOptions& options,
                                   const torch::nn::Module& module) {
  return {.buckets = step::limits_capped_at(options.bucket_cap_mb),
          .divided = divided_parameters(module),
          .overlap = options.overlap,
          .find_unused = options.find_unused_parameters,
          .check_finite = options.check_finite,
          .codec_min_elements = options.codec_min_elements,
          .exchange = {.codec = options.codec,
                       .warmup_steps = options.codec_warmup_steps,
                       .seed = options.codec_seed},
          .optimizer = options.optimizer,
          .clock = options.clock,
          .trace = options.trace};
}

}  // namespace

const DataParallelOptions& with_optimizer_for_overlap(const DataParallelOptions& options) {
  if (options.overlap == step::Overlap::full && !options.optimizer) {
    refuse(
        "DataParallel: Overlap::full requires an optimizer that steps bucket by "
        "bucket; pass {.optimizer = ...} and call step(), or use Overlap::backward");
  }
  return options;
}

DataParallelCore::DataParallelCore(torch::nn::Module& module, const DataParallelOptions& options,
                                   bool sequential)
    : group_(options.process_group),
      parameters_(trainable_parameters(module)),
      buffers_(all_buffers(module)),
      broadcast_buffers_(options.broadcast_buffers),
      find_unused_(options.find_unused_parameters),
      forward_awaits_(options.forward_awaits || sequential),
      clock_(options.clock),
      trace_(options.trace) {
  check_options(options);
  initialize_vector_math();
  if (size() > 1) {
    const auto state = concatenated(all_parameters(module), buffers_);
    check_same_model("DataParallel", *group_, state);
    broadcast_tensors(*group_, state);
  }
  replicated_ =
      std::make_unique<ReplicatedStep>(group_, parameters_, step_options(options, module));
}

DataParallelCore::~DataParallelCore() {
  // The module may outlive this, and must contain the last step.
  try {
    if (std::uncaught_exceptions() == 0) finish();
  } catch (const std::exception&) {
    // The communicator has failed; its next user gets the reason.
  }
}

void DataParallelCore::before_forward(const torch::nn::Module& module) {
  const bool training = module.is_training() && torch::GradMode::is_enabled();
  if (training) require_own_module(module);
  if (broadcast_buffers_ && synchronizes() && training) synchronize_buffers();
  if (!forward_awaits_ || !training) finish();
}

/// A parameter without hooks would be trained by each rank alone, or not at all.
void DataParallelCore::require_own_module(const torch::nn::Module& module) const {
  const auto unknown = first_unknown_trainable(
      module, [this](const torch::Tensor& parameter) { return replicated_->has(parameter); });
  if (unknown.empty()) return;
  const auto text = fmt::format(
      "rank {}: DataParallel: '{}' is trainable, but was absent or frozen when the DataParallel "
      "was "
      "constructed, so its gradient would not be averaged; construct a new one from the module",
      rank(), unknown);
  abort_group(*group_, text);
  throw Exception(ErrorKind::invalid_argument, text);
}

void DataParallelCore::after_forward(const std::vector<torch::Tensor>& outputs) {
  if (replicated_->pending()) require_stepped(outputs);
  finish();  // Parameters that forward did not use.
  if (torch::GradMode::is_enabled()) replicated_->prepare(outputs, synchronizes());
}

void DataParallelCore::require_stepped(const std::vector<torch::Tensor>& outputs) const {
  const auto reached = walk_graph(graph_roots(outputs));
  for (const auto& [name, tensor] : parameters_) {
    if (!replicated_->pending(tensor)) continue;
    if (!reached.contains(torch::autograd::impl::grad_accumulator(tensor).get())) continue;
    refuse(
        "rank {}: DataParallel: forward used '{}' before the pending step had updated it; call "
        "gradwire::await_parameters(its module) first, or set forward_awaits to false",
        rank(), name);
  }
}

void DataParallelCore::step(BeforeStep before) {
  if (replicated_->optimizers().empty() && !parameters_.empty()) {
    refuse(
        "DataParallel: step() without an optimizer; pass {.optimizer = ...}, or step "
        "your own optimizer");
  }
  replicated_->begin_step(std::move(before));
}

void DataParallelCore::synchronize_buffers() {
  if (size() == 1 || buffers_.empty()) return;
  const TraceScope scope(trace_, TraceKind::wait, "buffers");
  const auto begin = clock_->now();
  broadcast_tensors(*group_, buffers_);
  buffer_time_ += clock_->now() - begin;
}

step::StepStats DataParallelCore::stats() const {
  auto stats = replicated_->stats();
  stats.exposed += buffer_time_;
  return stats;
}

}  // namespace gradwire
