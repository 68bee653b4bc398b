#include "gradwire/train/pipeline/hybrid_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/host/training_host.h"
#include "gradwire/pipeline/weight_rules.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/optim/clipping.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/pipeline/error_context.h"
#include "gradwire/train/pipeline/evaluation_mode.h"
#include "gradwire/train/pipeline/gradient_norm.h"
#include "gradwire/train/pipeline/group_transfers.h"
#include "gradwire/train/pipeline/stage_shapes.h"

namespace gradwire {
namespace {

std::int64_t count_samples(const torch::Tensor& inputs, const torch::Tensor& targets,
                           std::int64_t samples) {
  for (const torch::Tensor& tensor : {inputs, targets}) {
    if (!tensor.defined()) continue;
    if (tensor.dim() == 0) refuse("a batch must have samples in its first dimension");
    if (samples >= 0 && samples != tensor.size(0)) {
      refuse("a batch of {} samples has a tensor with {} rows", samples, tensor.size(0));
    }
    samples = tensor.size(0);
  }
  if (samples < 1) {
    refuse("the number of samples is {}: give a tensor of the batch, or the number of its samples",
           samples < 0 ? "unknown" : std::to_string(samples));
  }
  return samples;
}

/// The first rows of a defined `tensor` once more, until it has `rows`.
torch::Tensor repeated_to(std::int64_t rows, const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.size(0) == rows) return tensor;
  return tensor.index_select(0, torch::arange(rows).remainder(tensor.size(0)).to(tensor.device()));
}

/// Pieces of divided parameters, and of their optimizer states, are of boxes.
void place_in_boxes(std::vector<TensorPiece>& pieces, const StageModule& module) {
  const auto boxes = parameter_boxes(module);
  if (boxes.empty()) return;
  for (TensorPiece& piece : pieces) {
    const auto box = boxes.find(parameter_of(piece.name));
    if (box == boxes.end() || piece.shape.empty()) continue;
    piece.shape = box->second.shape;
    piece.part = box->second.part;
  }
}

}  // namespace

namespace {

/// Fills in the groups that the caller left out.
Pipeline::Options completed(Pipeline::Options options) {
  if (!options.process_group) refuse("Pipeline needs a process group: gradwire::init() makes one");
  if (!options.optimizer) refuse("Pipeline needs an optimizer factory, which makes a stage's");
  if (!options.loss.sum) refuse("Pipeline needs a loss, such as cross_entropy_sum()");
  for (ProcessGroup* group : {&options.data.process_group, &options.tensor, &options.spatial}) {
    if (!*group) *group = group_of_one();
  }
  return options;
}

}  // namespace

HybridModel::HybridModel(const Layers& layers, Options options)
    : options_(completed(std::move(options))),
      waits_(options_.data.options.clock, options_.data.options.trace),
      own_(build_stages(layers, options_)),
      rank_(options_.process_group->getRank()),
      ranks_(options_.process_group->getSize()) {}

/// The update of a stage of this rank.
StageUpdate& HybridModel::update(pipeline::Stage stage) const {
  return *std::ranges::find(own_.stages, stage, &LocalStage::stage)->update;
}

bool HybridModel::has_last_stage() const {
  return own_.stages.back().stage + 1 == static_cast<pipeline::Stage>(own_.cut.size());
}

HybridModel::Run& HybridModel::run_for(std::int64_t samples, bool trains) {
  int parts = parts_of(samples);
  if (trains && updates_each_micro_batch(rule_of(own_.method))) parts = 1;
  Run& run = runs_[{parts, trains}];
  if (!run.runner) {
    run.schedule = schedule_for(options_, own_, parts, trains);
    run.transfers = group_transfers(own_.transfers, run.schedule);
    run.runner =
        std::make_unique<pipeline::PipelineRunner>(run.schedule, rank_, *work_, *run.transfers);
  }
  // Messages of two schedules must not meet.
  if (last_run_ != &run) finish_last_run();
  last_run_ = &run;
  return run;
}

void HybridModel::finish_last_run() {
  if (last_run_) last_run_->runner->finish();
  for (const LocalStage& stage : own_.stages) {
    if (stage.update->weights()) stage.update->weights()->drained();
  }
}

void HybridModel::finish() {
  run_or_abort_groups(options_, [&] {
    finish_last_run();
    for (const LocalStage& stage : own_.stages) {
      with_context(update_of(stage.stage, steps_ - 1), [&] {
        stage.update->host().finish();
        stage.update->host().synchronize_buffers();
      });
    }
  });
}

/// Starts to add up the losses of all replicas. Divided by their number, because gradients are
/// averaged over replicas.
std::function<double()> HybridModel::count_of(const MicroBatches& batch) {
  if (!has_last_stage()) return {};
  double own = 0;
  for (const torch::Tensor& target : batch.targets) own += options_.loss.count(target);
  const int replicas = options_.data.process_group->getSize();
  if (replicas == 1) return [own] { return own; };
  std::vector<torch::Tensor> sum{torch::full({1}, own, torch::kFloat64)};
  const auto work = options_.data.process_group->allreduce(sum);
  return [work, sum, replicas] {
    wait_measured(*work, "wait for number of losses");
    return sum[0].item<double>() / replicas;
  };
}

/// The number of micro-batches of each replica. Collective over them.
std::vector<double> HybridModel::parts_of_replicas(std::int64_t samples) const {
  const ProcessGroup& replicas = options_.data.process_group;
  std::vector<double> parts(static_cast<std::size_t>(replicas->getSize()), 0);
  parts[static_cast<std::size_t>(replicas->getRank())] = parts_of(samples);
  return sum_over_ranks(*replicas, std::move(parts));
}

/// Replicas that communicate for each micro-batch must have the same number of them: with
/// pipedream, which updates after each, and ZeRO 2 and 3.
void HybridModel::check_parts(std::int64_t samples) const {
  const bool each = updates_each_micro_batch(rule_of(own_.method)) || options_.data.zero_stage > 1;
  if (options_.data.process_group->getSize() == 1 || !each) return;
  const std::vector<double> parts = parts_of_replicas(samples);
  if (std::ranges::count(parts, parts[0]) == std::ssize(parts)) return;
  const std::string what = options_.data.zero_stage > 1
                               ? fmt::format("ZeRO stage {}", options_.data.zero_stage)
                               : options_.schedule;
  refuse(
      "{} adds gradients of all replicas for each micro-batch, but they have {} of them in this "
      "batch: give each replica {} samples or more, or all the same number",
      what, fmt::join(parts, ", "), options_.micro_batches);
}

/// The number of samples to evaluate in place of `samples`: with ZeRO 3, replicas gather parameters
/// together in each forward, so all have as many micro-batches as the one that has most.
std::int64_t HybridModel::padded(std::int64_t samples) const {
  if (options_.data.process_group->getSize() == 1 || options_.data.zero_stage < 3) return samples;
  return std::max(samples, static_cast<std::int64_t>(std::ranges::max(parts_of_replicas(samples))));
}

/// The steps of the runner for a batch: one, or one for each micro-batch.
std::vector<PipelineStages::Step> HybridModel::steps_of(const Run& run, const torch::Tensor& inputs,
                                                        const torch::Tensor& targets,
                                                        std::int64_t samples) {
  const int parts = parts_of(samples);
  MicroBatches batch = micro_batches_of(samples, parts, inputs, targets);
  std::vector<PipelineStages::Step> steps;
  if (parts == run.schedule.micro_batches) {
    steps.push_back({.batch = std::move(batch)});
  } else {
    for (MicroBatches& one : one_by_one(batch)) steps.push_back({.batch = std::move(one)});
  }
  for (PipelineStages::Step& step : steps) {
    step.samples_before = options_.data.process_group->getRank() * samples;
    step.number = steps_;
  }
  return steps;
}

LossSum HybridModel::train_step(const torch::Tensor& inputs, const torch::Tensor& targets,
                                const StepOptions& step) {
  LossSum loss;
  const WaitScope waits(waits_);
  run_or_abort_groups(options_, [&] {
    const std::int64_t samples = count_samples(inputs, targets, step.samples);
    if (has_first_stage() && !inputs.defined()) refuse("rank {} needs the inputs", rank_);
    if (has_last_stage() && !targets.defined()) refuse("rank {} needs the targets", rank_);
    with_context(update_of(own_.stages.front().stage, steps_), [&] { check_parts(samples); });
    if (!work_) begin_work(inputs);
    Run& run = run_for(samples, /*trains=*/true);
    std::vector<PipelineStages::Step> steps = steps_of(run, inputs, targets, samples);
    const std::size_t count = steps.size();
    for (PipelineStages::Step& each : steps) {
      each.count = count_of(each.batch);
      each.before = step.before;
    }
    // Receives that have started for the next step would be in the way of a drain, and of another
    // pipeline on the same group.
    const bool is_alone = ranks_ == 1 || own_.transfers != options_.process_group;
    const bool is_alike = is_alone && !own_.is_asynchronous() &&
                          parts_of(step.next_samples) == run.schedule.micro_batches;
    work_->begin(*run.runner, std::move(steps), is_alike ? step.next_samples : -1);
    for (std::size_t i = 0; i < count; ++i) run.runner->step();
    step_together(step.before);
    loss = work_->loss();
    ++steps_;
  });
  return loss;
}

torch::Tensor HybridModel::evaluate(const torch::Tensor& inputs, std::int64_t samples) {
  torch::Tensor result;
  run_or_abort_groups(options_, [&] {
    samples = count_samples(inputs, {}, samples);
    if (has_first_stage() && !inputs.defined()) refuse("rank {} needs the inputs", rank_);
    if (!work_) begin_work(inputs);
    const std::int64_t all = padded(samples);
    Run& run = run_for(all, /*trains=*/false);
    // Pending backwards, which recompute forwards in training mode, have run.
    const EvaluationMode evaluation(own_.stages);
    work_->begin(*run.runner, steps_of(run, repeated_to(all, inputs), {}, all));
    run.runner->step();
    if (has_last_stage()) result = torch::cat(work_->outputs()).narrow(0, 0, samples);
  });
  return result;
}

/// Finds out what passes between stages, with the first batch.
void HybridModel::begin_work(const torch::Tensor& inputs) {
  work_ = std::make_unique<PipelineStages>(
      own_.stages, own_.edges, shapes_, static_cast<int>(own_.cut.size()),
      PipelineStages::Options{.loss = options_.loss,
                              .seed = options_.seed,
                              .recompute = options_.recompute,
                              .codecs = options_.activation_codec,
                              .step_at_once = !options_.clip_norm,
                              .other_weights = keeps_weights(own_.method) ? "" : options_.weights,
                              .trace = options_.data.options.trace});
  find_shapes(own_, options_, inputs, *work_, shapes_);
}

/// Steps the stages that need gradients of others, when this rank has computed all its tasks: a
/// rank that waited earlier could hold up the ranks that it waits for.
void HybridModel::step_together(const BeforeStep& before) {
  for (const LocalStage& stage : own_.stages) {
    if (!stage.is_tied) continue;
    with_context(update_of(stage.stage, steps_), [&] { stage.update->wait_for_gradients(); });
  }
  with_context(update_of(own_.stages.front().stage, steps_) + ": tied gradients",
               [&] { add_tied_gradients(); });
  if (options_.clip_norm) {
    clip_and_step(before);
    return;
  }
  for (const LocalStage& stage : own_.stages) {
    if (!stage.is_tied) continue;
    with_context(update_of(stage.stage, steps_), [&] { stage.update->step(before, 1); });
  }
}

void HybridModel::add_tied_gradients() const {
  const auto own = [this](pipeline::Stage stage, const torch::Tensor& parameter) {
    return update(stage).own_gradient(parameter);
  };
  own_.ties->add_gradients(*options_.process_group, own);
}

/// Clips by the norm of all gradients, then steps.
void HybridModel::clip_and_step(const BeforeStep& before) {
  const torch::NoGradGuard no_grad;
  const TraceScope scope(options_.data.options.trace, TraceKind::optimizer, "gradient norm");
  const double norm = std::sqrt(squared_norm(own_, options_, steps_));
  const double scale = clipping_factor(norm, *options_.clip_norm);
  for (const LocalStage& stage : own_.stages) {
    with_context(update_of(stage.stage, steps_), [&] { stage.update->step(before, scale); });
  }
}

std::vector<TensorPiece> HybridModel::pieces(bool make_states) {
  finish();
  std::vector<TensorPiece> all;
  for (const LocalStage& stage : own_.stages) {
    auto pieces = stage.update->state().pieces(make_states);
    place_in_boxes(pieces, *stage.module);
    all.insert(all.end(), std::make_move_iterator(pieces.begin()),
               std::make_move_iterator(pieces.end()));
  }
  return all;
}

step::StepStats HybridModel::stats() const {
  step::StepStats sum{.exposed = waits_.waited()};
  for (const LocalStage& stage : own_.stages) {
    const step::StepStats own = stage.update->host().stats();
    sum.exposed += own.exposed;
    sum.bytes += own.bytes;
    sum.operations += own.operations;
    sum.synchronized += own.synchronized;
  }
  return sum;
}

std::vector<exchange::Exchange*> HybridModel::feedback() {
  std::vector<exchange::Exchange*> all;
  for (const LocalStage& stage : own_.stages) {
    if (exchange::Exchange* own = stage.update->host().feedback()) all.push_back(own);
  }
  return all;
}

void HybridModel::loaded() {
  for (const LocalStage& stage : own_.stages) stage.update->state().loaded();
  const auto own = [this](pipeline::Stage stage, const torch::Tensor& parameter) {
    return update(stage).own_values(parameter);
  };
  run_or_abort_groups(options_, [&] { own_.ties->check_equal(*options_.process_group, own); });
}

}  // namespace gradwire
