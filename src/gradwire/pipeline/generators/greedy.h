#pragma once

#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/pipeline_schedule.h"

namespace gradwire::pipeline {

/// Orders the tasks of a schedule without an order by list scheduling in virtual time: a rank that
/// is free computes gradients of inputs if it can, else a forward, of the later stage if it has
/// several, else gradients of weights. A rank keeps at most `kept` micro-batches of its stages;
/// room for the forwards of its later stages is set aside, without which it might wait for ever.
/// Requires a chain of stages and `kept` of at least the stages of a rank.
PipelineSchedule order_greedily(PipelineSchedule schedule, const PipelineCosts& costs, int kept);

}  // namespace gradwire::pipeline
