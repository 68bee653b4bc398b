#include "gradwire/train/pipeline/pipeline.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/pipeline/weight_rules.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/named_tensor.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/pipeline/group_transfers.h"

namespace gradwire {
namespace {

/// Puts modules into evaluation mode, and back.
class EvaluationMode {
 public:
  explicit EvaluationMode(const std::vector<LocalStage>& stages) {
    for (const LocalStage& stage : stages) {
      for (const auto& module : stage.module->modules()) {
        modes_.emplace_back(module, module->is_training());
      }
      stage.module->eval();
    }
  }
  ~EvaluationMode() {
    // A module's train() applies to its children, which come later.
    for (const auto& [module, training] : modes_) module->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

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

/// A shape as text, for other ranks: "5 32 768 float32" with the type's number.
std::string text_of(const BoundaryShape& shape) {
  return fmt::format("{} {}", static_cast<int>(shape.type), fmt::join(shape.sizes, " "));
}

BoundaryShape shape_in(const std::string& text) {
  std::istringstream words(text);
  int type = 0;
  words >> type;
  BoundaryShape shape{.type = static_cast<torch::ScalarType>(type)};
  for (std::int64_t size = 0; words >> size;) shape.sizes.push_back(size);
  return shape;
}

BoundaryShape shape_of(const torch::Tensor& output, std::int64_t samples, pipeline::Stage stage) {
  if (output.dim() == 0 || output.size(0) != samples) {
    refuse(
        "the last layer of stage {} returned a tensor of {} rows for {} samples: what passes "
        "between stages must have the samples in its first dimension",
        stage, output.dim() == 0 ? 0 : output.size(0), samples);
  }
  if (!output.is_floating_point()) {
    refuse(
        "the last layer of stage {} returned {}: what passes between stages must be of a "
        "floating-point type, because gradients pass back; cut elsewhere",
        stage, c10::toString(output.scalar_type()));
  }
  return {output.sizes().slice(1).vec(), output.scalar_type()};
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

/// Runs `action`; puts `what` in front of the message of an Exception.
template <class Action>
void about(const std::string& what, const Action& action) {
  try {
    action();
  } catch (const Exception& e) {
    throw Exception(e.kind(), fmt::format("{}: {}", what, e.what()));
  }
}

std::string update_of(const LocalStage& stage, std::int64_t step) {
  return fmt::format("step {}, the update of stage {}", step, stage.stage);
}

}  // namespace

Pipeline::Pipeline(const Layers& layers, Options options) : options_(std::move(options)) {
  if (!options_.process_group) refuse("Pipeline needs a process group: gradwire::init() makes one");
  if (!options_.optimizer) refuse("Pipeline needs an optimizer factory, which makes a stage's");
  if (!options_.loss.sum) refuse("Pipeline needs a loss, such as cross_entropy_sum()");
  for (ProcessGroup* group : {&options_.data.process_group, &options_.tensor, &options_.spatial}) {
    if (!*group) *group = group_of_one();
  }
  waits_.emplace(options_.data.options.clock, options_.data.options.trace);
  check_data_options();
  method_ = find_method();
  rank_ = options_.process_group->getRank();
  ranks_ = options_.process_group->getSize();
  check_ties(layers);
  run_or_abort_groups([&] {
    check_agreement(layers);
    check_places();
    transfer_group_ = group_for_transfers();
    make_stages(layers);
  });
}

/// All groups of this rank.
std::vector<ProcessGroup> Pipeline::groups() const {
  return {options_.process_group, options_.data.process_group, options_.tensor, options_.spatial};
}

/// Ranks that fail end the operations of all their groups, so that none waits for them.
void Pipeline::run_or_abort_groups(const std::function<void()>& task) const {
  try {
    task();
  } catch (const std::exception& error) {
    for (const ProcessGroup& group : groups()) abort_group(*group, error.what());
    throw;
  }
}

/// Messages of two pipelines on one group must not meet: the receives that one has started for its
/// next step would take those of the other. Other backends have no subgroups that cost nothing.
ProcessGroup Pipeline::group_for_transfers() const {
  const ProcessGroup& group = options_.process_group;
  if (ranks_ == 1 || !communicator_of(*group)) return group;
  std::vector<Rank> all(static_cast<std::size_t>(ranks_));
  std::iota(all.begin(), all.end(), 0);
  return subgroup_of(*group, all);
}

/// If each micro-batch has an update of its own, it is a step of the schedule, so that batches of
/// all sizes follow each other.
pipeline::PipelineSchedule Pipeline::schedule_for(int micro_batches, bool trains) const {
  const pipeline::WeightRule rule = rule_of(method_);
  if (trains && updates_each_micro_batch(rule)) micro_batches = 1;
  pipeline::PipelineSchedule schedule = value_or_throw(pipeline::make_pipeline(
      options_.schedule,
      {.ranks = ranks_, .micro_batches = micro_batches, .costs = options_.costs}));
  if (!schedule.trains) refuse("{} does not train: use 1f1b, zero_bubble, ...", options_.schedule);
  for (const pipeline::Edge& edge : edges_.skips()) schedule.edges.push_back(edge);
  if (!trains) return forwards_of(std::move(schedule));
  return is_asynchronous() ? with_rule(std::move(schedule), rule) : schedule;
}

void Pipeline::make_stages(const Layers& layers) {
  const pipeline::PipelineSchedule schedule = schedule_for(options_.micro_batches, true);
  cut_ = complete_cut(layers, options_.cut, schedule.stages());
  if (options_.tensor->getSize() > 1) {
    const auto cuts = gather_texts(*options_.tensor, fmt::format("{}", fmt::join(cut_, " ")));
    if (std::ranges::count(cuts, cuts[0]) != std::ssize(cuts)) {
      refuse("ranks that share layers cut them differently: {}; give the pipeline a cut",
             fmt::join(cuts, "; "));
    }
  }
  edges_ = StageEdges(layers, cut_);
  ties_.emplace(layers, rank_);
  std::size_t layer = 0;
  for (pipeline::Stage s = 0; s < schedule.stages(); ++s) {
    const Rank owner = schedule.rank_of[static_cast<std::size_t>(s)];
    LocalStage stage{.stage = s, .first_layer = layer, .module = std::make_shared<StageModule>()};
    const std::size_t first_parameter = all_parameters_;
    double elements = 0;
    for (std::size_t i = 0; i < cut_[static_cast<std::size_t>(s)]; ++i, ++layer) {
      torch::nn::AnyModule made = layers.make(layer);
      all_parameters_ =
          ties_->add_layer(layers.name(layer), *made.ptr(), s, owner, all_parameters_);
      elements += whole_elements(*made.ptr());
      if (owner == rank_) {
        stage.module->add(layers.name(layer), std::move(made), skips_of(layers, layer));
      }
    }
    description_ += fmt::format("stage {} on rank {}: {} to {}, {:.0f} parameters\n", s, owner,
                                layers.name(stage.first_layer), layers.name(layer - 1), elements);
    if (owner != rank_) continue;
    stage.device = device_of(*stage.module);
    check_optimizer(stage);
    check_gradient_codec(stage);
    make_equal(stage);
    if (is_asynchronous()) {
      const int staleness = schedule.weight_bounds[static_cast<std::size_t>(s)].staleness;
      stage.update = make_asynchronous_update(*stage.module, method_, {s, staleness}, options_.data,
                                              optimizer_factory());
    } else {
      const std::vector<torch::Tensor> tied = ties_->trained(s);
      stage.is_tied = !tied.empty();
      stage.update = make_stage_update(*stage.module, options_.data, optimizer_factory(), tied);
    }
    first_parameter_.push_back(first_parameter);
    stages_.push_back(std::move(stage));
  }
  ties_->complete();
}

/// Tied parameters have one name, so that all of them are in the same parameter group.
OptimizerFactory Pipeline::optimizer_factory() const {
  return [this](const std::vector<NamedTensor>& parameters) {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : parameters)
      named.push_back({ties_->first_name(name), tensor});
    return options_.optimizer(named);
  };
}

/// Broadcasts the replicated parameters and buffers of a stage to the ranks that share its layers.
void Pipeline::make_equal(const LocalStage& stage) const {
  const auto boxes = parameter_boxes(*stage.module);
  if (!boxes.empty() && options_.tensor->getSize() == 1) {
    refuse("{} is divided over ranks: give the pipeline their group, .tensor = mesh.tensor()",
           boxes.begin()->first);
  }
  std::vector<NamedTensor> replicated;
  for (const auto& tensors : {all_parameters(*stage.module), all_buffers(*stage.module)}) {
    for (const auto& [name, tensor] : tensors) {
      if (!boxes.contains(name)) replicated.push_back({name, tensor.detach()});
    }
  }
  for (const ProcessGroup& group : {options_.tensor, options_.spatial}) {
    if (group->getSize() > 1) broadcast_tensors(*group, replicated);
  }
}

/// The update of a stage of this rank.
StageUpdate& Pipeline::update(pipeline::Stage stage) const {
  return *std::ranges::find(stages_, stage, &LocalStage::stage)->update;
}

bool Pipeline::has_last_stage() const {
  return stages_.back().stage + 1 == static_cast<pipeline::Stage>(cut_.size());
}

Pipeline::Run& Pipeline::run_for(std::int64_t samples, bool trains) {
  int parts = parts_of(samples);
  if (trains && updates_each_micro_batch(rule_of(method_))) parts = 1;
  Run& run = runs_[{parts, trains}];
  if (!run.runner) {
    run.schedule = schedule_for(parts, trains);
    run.transfers = group_transfers(transfer_group_, run.schedule);
    run.runner =
        std::make_unique<pipeline::PipelineRunner>(run.schedule, rank_, *work_, *run.transfers);
  }
  // Messages of two schedules must not meet.
  if (last_run_ != &run) finish_last_run();
  last_run_ = &run;
  return run;
}

void Pipeline::finish_last_run() {
  if (last_run_) last_run_->runner->finish();
  for (const LocalStage& stage : stages_) {
    if (stage.update->weights()) stage.update->weights()->drained();
  }
}

void Pipeline::finish() {
  run_or_abort_groups([&] {
    if (is_asynchronous()) finish_last_run();
    for (const LocalStage& stage : stages_) {
      about(update_of(stage, steps_ - 1), [&] {
        stage.update->host().finish();
        stage.update->host().synchronize_buffers();
      });
    }
  });
}

/// Starts to add up the losses of all replicas. Divided by their number, because gradients are
/// averaged over replicas.
std::function<double()> Pipeline::count_of(const MicroBatches& batch) {
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
std::vector<double> Pipeline::parts_of_replicas(std::int64_t samples) const {
  const ProcessGroup& replicas = options_.data.process_group;
  std::vector<double> parts(static_cast<std::size_t>(replicas->getSize()), 0);
  parts[static_cast<std::size_t>(replicas->getRank())] = parts_of(samples);
  return sum_over_ranks(*replicas, std::move(parts));
}

/// Replicas that communicate for each micro-batch must have the same number of them: with
/// pipedream, which updates after each, and ZeRO 2 and 3.
void Pipeline::check_parts(std::int64_t samples) const {
  const bool each = updates_each_micro_batch(rule_of(method_)) || options_.data.zero_stage > 1;
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
std::int64_t Pipeline::padded(std::int64_t samples) const {
  if (options_.data.process_group->getSize() == 1 || options_.data.zero_stage < 3) return samples;
  return std::max(samples, static_cast<std::int64_t>(std::ranges::max(parts_of_replicas(samples))));
}

/// The steps of the runner for a batch: one, or one for each micro-batch.
std::vector<PipelineStages::Step> Pipeline::steps_of(const Run& run, const torch::Tensor& inputs,
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

LossSum Pipeline::train_step(const torch::Tensor& inputs, const torch::Tensor& targets,
                             const StepOptions& step) {
  LossSum loss;
  const WaitScope waits(*waits_);
  run_or_abort_groups([&] {
    const std::int64_t samples = count_samples(inputs, targets, step.samples);
    if (has_first_stage() && !inputs.defined()) refuse("rank {} needs the inputs", rank_);
    if (has_last_stage() && !targets.defined()) refuse("rank {} needs the targets", rank_);
    about(update_of(stages_.front(), steps_), [&] { check_parts(samples); });
    if (!work_) find_shapes(inputs);
    Run& run = run_for(samples, /*trains=*/true);
    std::vector<PipelineStages::Step> steps = steps_of(run, inputs, targets, samples);
    const std::size_t count = steps.size();
    for (PipelineStages::Step& each : steps) {
      each.count = count_of(each.batch);
      each.before = step.before;
    }
    // Receives that have started for the next step would be in the way of a drain, and of another
    // pipeline on the same group.
    const bool is_alone = ranks_ == 1 || transfer_group_ != options_.process_group;
    const bool is_alike =
        is_alone && !is_asynchronous() && parts_of(step.next_samples) == run.schedule.micro_batches;
    work_->begin(*run.runner, std::move(steps), is_alike ? step.next_samples : -1);
    for (std::size_t i = 0; i < count; ++i) run.runner->step();
    step_together(step.before);
    loss = work_->loss();
    ++steps_;
  });
  return loss;
}

torch::Tensor Pipeline::evaluate(const torch::Tensor& inputs, std::int64_t samples) {
  torch::Tensor result;
  run_or_abort_groups([&] {
    samples = count_samples(inputs, {}, samples);
    if (has_first_stage() && !inputs.defined()) refuse("rank {} needs the inputs", rank_);
    if (!work_) find_shapes(inputs);
    const std::int64_t all = padded(samples);
    Run& run = run_for(all, /*trains=*/false);
    // Pending backwards, which recompute forwards in training mode, have run.
    const EvaluationMode evaluation(stages_);
    work_->begin(*run.runner, steps_of(run, repeated_to(all, inputs), {}, all));
    run.runner->step();
    if (has_last_stage()) result = torch::cat(work_->outputs()).narrow(0, 0, samples);
  });
  return result;
}

constexpr std::int64_t kExampleSamples = 2;

/// Runs two samples through all stages, one after the other, and tells all ranks what passes
/// between them. Neither random numbers nor running statistics change.
void Pipeline::find_shapes(const torch::Tensor& inputs) {
  const pipeline::PipelineSchedule schedule = schedule_for(options_.micro_batches, true);
  const int stages = schedule.stages();
  work_ = std::make_unique<PipelineStages>(
      stages_, edges_, shapes_, stages,
      PipelineStages::Options{.loss = options_.loss,
                              .seed = options_.seed,
                              .recompute = options_.recompute,
                              .codecs = options_.activation_codec,
                              .step_at_once = !options_.clip_norm,
                              .other_weights = keeps_weights(method_) ? "" : options_.weights,
                              .trace = options_.data.options.trace});
  const EvaluationMode evaluation(stages_);
  const torch::NoGradGuard no_grad;
  for (pipeline::Stage s = 0; s + 1 < stages; ++s) {
    const auto local = std::ranges::find(stages_, s, &LocalStage::stage);
    const auto texts = collective_try(*options_.process_group, [&]() -> std::string {
      return local == stages_.end() ? "" : output_shapes(*local, inputs);
    });
    const Rank owner = schedule.rank_of[static_cast<std::size_t>(s)];
    std::istringstream lines(texts[static_cast<std::size_t>(owner)]);
    for (const auto& [edge, values] : edges_.out_of(s)) {
      std::string line;
      for (std::size_t v = 0; v < values.size() && std::getline(lines, line); ++v) {
        shapes_[edge].push_back(shape_in(line));
      }
    }
  }
  check_codecs();
}

/// The shapes that a stage returns for two samples of zeros, or the first of the batch: a line for
/// each value of each edge.
std::string Pipeline::output_shapes(const LocalStage& stage, const torch::Tensor& inputs) const {
  StageValues received;
  if (stage.stage == 0) {
    const torch::Tensor first = inputs.narrow(0, 0, 1);
    received[kPassing] = torch::cat({first, first});
  }
  for (const auto& [edge, values] : edges_.into(stage.stage)) {
    for (std::size_t v = 0; v < values.size(); ++v) {
      received[values[v]] = shapes_.at(edge)[v].empty(kExampleSamples).zero_();
    }
  }
  const StageValues outputs = work_->forward(stage, received, 0, 0);
  std::string text;
  for (const auto& [edge, values] : edges_.out_of(stage.stage)) {
    const torch::ScalarType type = outputs.at(values.front()).scalar_type();
    for (const StageValue value : values) {
      const BoundaryShape shape = shape_of(outputs.at(value), kExampleSamples, stage.stage);
      if (shape.type != type) {
        refuse(
            "stage {} sends {} and {} to stage {}: skip connections need the type of what passes",
            edge.first, c10::toString(type), c10::toString(shape.type), edge.second);
      }
      text += text_of(shape) + "\n";
    }
  }
  return text;
}

/// Steps the stages that need gradients of others, when this rank has computed all its tasks: a
/// rank that waited earlier could hold up the ranks that it waits for.
void Pipeline::step_together(const BeforeStep& before) {
  for (const LocalStage& stage : stages_) {
    if (!stage.is_tied) continue;
    about(update_of(stage, steps_), [&] { stage.update->wait_for_gradients(); });
  }
  about(update_of(stages_.front(), steps_) + ": tied gradients", [&] { add_tied_gradients(); });
  if (options_.clip_norm) {
    clip_and_step(before);
    return;
  }
  for (const LocalStage& stage : stages_) {
    if (!stage.is_tied) continue;
    about(update_of(stage, steps_), [&] { stage.update->step(before, 1); });
  }
}

void Pipeline::add_tied_gradients() const {
  const auto own = [this](pipeline::Stage stage, const torch::Tensor& parameter) {
    return update(stage).own_gradient(parameter);
  };
  ties_->add_gradients(*options_.process_group, own);
}

/// The squared norm of all gradients: squares are added in the order of the parameters, those of
/// divided ones then over their ranks.
double Pipeline::squared_norm() const {
  std::vector<double> squares(2 * all_parameters_, 0);
  const auto divided = squares.begin() + static_cast<std::ptrdiff_t>(all_parameters_);
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    about(update_of(stages_[s], steps_), [&] {
      const SquaredNorms own = stages_[s].update->squared_norms();
      const auto first = static_cast<std::ptrdiff_t>(first_parameter_[s]);
      std::ranges::copy(own.replicated, squares.begin() + first);
      std::ranges::copy(own.divided, divided + first);
    });
  }
  double norm = 0;
  about(update_of(stages_.front(), steps_) + ": norm of all gradients",
        [&] { norm = sum_of_squares(std::move(squares)); });
  return norm;
}

/// `squares`: of replicated parameters, then of divided ones. Every sum over the pipeline has one
/// addend that is not zero, and is exact.
double Pipeline::sum_of_squares(std::vector<double> squares) const {
  const bool is_divided = options_.tensor->getSize() > 1;
  if (!is_divided) squares.resize(all_parameters_);
  squares = sum_over_ranks(*options_.process_group, std::move(squares));
  for (const std::size_t repeated : ties_->repeated()) {
    squares[repeated] = 0;
    if (is_divided) squares[all_parameters_ + repeated] = 0;
  }
  const auto end = squares.begin() + static_cast<std::ptrdiff_t>(all_parameters_);
  const double replicated = std::accumulate(squares.begin(), end, 0.0);
  if (!is_divided) return replicated;
  return replicated +
         sum_over_ranks(*options_.tensor, {std::accumulate(end, squares.end(), 0.0)})[0];
}

/// Clips by the norm of all gradients, then steps.
void Pipeline::clip_and_step(const BeforeStep& before) {
  const torch::NoGradGuard no_grad;
  const TraceScope scope(options_.data.options.trace, TraceKind::optimizer, "gradient norm");
  const double norm = std::sqrt(squared_norm());
  const double scale = std::min(1.0, *options_.clip_norm / (norm + 1e-6));
  for (const LocalStage& stage : stages_) {
    about(update_of(stage, steps_), [&] { stage.update->step(before, scale); });
  }
}

std::vector<TensorPiece> Pipeline::pieces(bool make_states) {
  finish();
  std::vector<TensorPiece> all;
  for (const LocalStage& stage : stages_) {
    auto pieces = stage.update->state().pieces(make_states);
    place_in_boxes(pieces, *stage.module);
    all.insert(all.end(), std::make_move_iterator(pieces.begin()),
               std::make_move_iterator(pieces.end()));
  }
  return all;
}

step::StepStats Pipeline::stats() const {
  step::StepStats sum{.exposed = waits_->waited()};
  for (const LocalStage& stage : stages_) {
    const step::StepStats own = stage.update->host().stats();
    sum.exposed += own.exposed;
    sum.bytes += own.bytes;
    sum.operations += own.operations;
    sum.synchronized += own.synchronized;
  }
  return sum;
}

std::vector<exchange::Exchange*> Pipeline::feedback() {
  std::vector<exchange::Exchange*> all;
  for (const LocalStage& stage : stages_) {
    if (exchange::Exchange* own = stage.update->host().feedback()) all.push_back(own);
  }
  return all;
}

void Pipeline::loaded() {
  for (const LocalStage& stage : stages_) stage.update->state().loaded();
  const auto own = [this](pipeline::Stage stage, const torch::Tensor& parameter) {
    return update(stage).own_values(parameter);
  };
  run_or_abort_groups([&] { ties_->check_equal(*options_.process_group, own); });
}

}  // namespace gradwire
