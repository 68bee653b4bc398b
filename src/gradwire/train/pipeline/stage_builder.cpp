#include "gradwire/train/pipeline/stage_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {

StageBuilder::StageBuilder(const Layers& layers, const Pipeline::Options& options)
    : layers_(layers),
      options_(options),
      rank_(options.process_group->getRank()),
      ranks_(options.process_group->getSize()) {}

HybridStages StageBuilder::build() {
  check_data_options();
  made_.method = find_method();
  check_ties(layers_);
  run_or_abort_groups(options_, [&] {
    check_agreement(layers_);
    check_places();
    made_.transfers = group_for_transfers();
    make_stages(layers_);
  });
  return std::move(made_);
}

/// Messages of two pipelines on one group must not meet: the receives that one has started for its
/// next step would take those of the other. Other backends have no subgroups that cost nothing.
ProcessGroup StageBuilder::group_for_transfers() const {
  const ProcessGroup& group = options_.process_group;
  if (ranks_ == 1 || !communicator_of(*group)) return group;
  std::vector<Rank> all(static_cast<std::size_t>(ranks_));
  std::iota(all.begin(), all.end(), 0);
  return subgroup_of(*group, all);
}

void StageBuilder::make_stages(const Layers& layers) {
  const pipeline::PipelineSchedule schedule =
      schedule_for(options_, made_, options_.micro_batches, true);
  made_.cut = complete_cut(layers, options_.cut, schedule.stages());
  if (options_.tensor->getSize() > 1) {
    const auto cuts = gather_texts(*options_.tensor, fmt::format("{}", fmt::join(made_.cut, " ")));
    if (std::ranges::count(cuts, cuts[0]) != std::ssize(cuts)) {
      refuse("ranks that share layers cut them differently: {}; give the pipeline a cut",
             fmt::join(cuts, "; "));
    }
  }
  made_.edges = StageEdges(layers, made_.cut);
  made_.ties = std::make_shared<TiedParameters>(layers, rank_);
  std::size_t layer = 0;
  for (pipeline::Stage s = 0; s < schedule.stages(); ++s) {
    const Rank owner = schedule.rank_of[static_cast<std::size_t>(s)];
    LocalStage stage{.stage = s, .first_layer = layer, .module = std::make_shared<StageModule>()};
    const std::size_t first_parameter = made_.all_parameters;
    double elements = 0;
    for (std::size_t i = 0; i < made_.cut[static_cast<std::size_t>(s)]; ++i, ++layer) {
      torch::nn::AnyModule made = layers.make(layer);
      made_.all_parameters =
          made_.ties->add_layer(layers.name(layer), *made.ptr(), s, owner, made_.all_parameters);
      elements += whole_elements(*made.ptr());
      if (owner == rank_) {
        stage.module->add(layers.name(layer), std::move(made), skips_of(layers, layer));
      }
    }
    made_.description +=
        fmt::format("stage {} on rank {}: {} to {}, {:.0f} parameters\n", s, owner,
                    layers.name(stage.first_layer), layers.name(layer - 1), elements);
    if (owner != rank_) continue;
    stage.device = device_of(*stage.module);
    check_optimizer(stage);
    check_gradient_codec(stage);
    make_equal(stage);
    if (made_.is_asynchronous()) {
      const int staleness = schedule.weight_bounds[static_cast<std::size_t>(s)].staleness;
      stage.update = make_asynchronous_update(*stage.module, made_.method, {s, staleness},
                                              options_.data, optimizer_factory());
    } else {
      const std::vector<torch::Tensor> tied = made_.ties->trained(s);
      stage.is_tied = !tied.empty();
      stage.update = make_stage_update(*stage.module, options_.data, optimizer_factory(), tied);
    }
    made_.first_parameter.push_back(first_parameter);
    made_.stages.push_back(std::move(stage));
  }
  made_.ties->complete();
}

/// Tied parameters have one name, so that all of them are in the same parameter group.
OptimizerFactory StageBuilder::optimizer_factory() const {
  return
      [ties = made_.ties, make = options_.optimizer](const std::vector<NamedTensor>& parameters) {
        std::vector<NamedTensor> named;
        for (const auto& [name, tensor] : parameters)
          named.push_back({ties->first_name(name), tensor});
        return make(named);
      };
}

/// Broadcasts the replicated parameters and buffers of a stage to the ranks that share its layers.
void StageBuilder::make_equal(const LocalStage& stage) const {
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

std::vector<ProcessGroup> groups_of(const Pipeline::Options& options) {
  return {options.process_group, options.data.process_group, options.tensor, options.spatial};
}

void run_or_abort_groups(const Pipeline::Options& options, const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& error) {
    for (const ProcessGroup& group : groups_of(options)) abort_group(*group, error.what());
    throw;
  }
}

pipeline::PipelineSchedule schedule_for(const Pipeline::Options& options,
                                        const HybridStages& stages, int micro_batches,
                                        bool trains) {
  const pipeline::WeightRule rule = rule_of(stages.method);
  if (trains && updates_each_micro_batch(rule)) micro_batches = 1;
  pipeline::PipelineSchedule schedule = value_or_throw(
      pipeline::make_pipeline(options.schedule, {.ranks = options.process_group->getSize(),
                                                 .micro_batches = micro_batches,
                                                 .costs = options.costs}));
  if (!schedule.trains) refuse("{} does not train: use 1f1b, zero_bubble, ...", options.schedule);
  for (const pipeline::Edge& edge : stages.edges.skips()) schedule.edges.push_back(edge);
  if (!trains) return forwards_of(std::move(schedule));
  return stages.is_asynchronous() ? with_rule(std::move(schedule), rule) : schedule;
}

HybridStages build_stages(const Layers& layers, const Pipeline::Options& options) {
  return StageBuilder(layers, options).build();
}

}  // namespace gradwire
