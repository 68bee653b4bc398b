#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/host/group.h"
#include "gradwire/pipeline/weight_rules.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "gradwire/train/pipeline/pipeline_stages.h"
#include "gradwire/train/pipeline/stage_edges.h"
#include "gradwire/train/pipeline/tied_parameters.h"

namespace gradwire {

/// A rank's part of a model whose layers, or their weights, are divided over ranks.
struct HybridStages {
  WeightMethod method = WeightMethod::flush;
  ProcessGroup transfers;                    ///< Group for messages between stages.
  std::vector<LocalStage> stages;            ///< This rank's.
  std::vector<std::size_t> cut;              ///< By stage: number of layers.
  std::vector<std::size_t> first_parameter;  ///< By local stage: index in the whole model.
  std::size_t all_parameters = 0;            ///< Number in the whole model.
  std::shared_ptr<TiedParameters> ties;      ///< Optimizer factories share it.
  StageEdges edges;
  std::string description;  ///< A line per stage of the model.

  bool is_asynchronous() const { return method != WeightMethod::flush; }
};

/// All groups of a rank.
std::vector<ProcessGroup> groups_of(const Pipeline::Options& options);

/// Ranks that fail end the operations of all their groups, so that none waits for them.
void run_or_abort_groups(const Pipeline::Options& options, const std::function<void()>& task);

/// The schedule for a number of micro-batches. If each micro-batch has an update of its own, it is
/// a step of the schedule, so that batches of all sizes follow each other.
pipeline::PipelineSchedule schedule_for(const Pipeline::Options& options,
                                        const HybridStages& stages, int micro_batches, bool trains);

/// Makes this rank's stages. Collective. Throws Exception as Pipeline's constructor does.
HybridStages build_stages(const Layers& layers, const Pipeline::Options& options);

}  // namespace gradwire
