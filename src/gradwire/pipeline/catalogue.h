#pragma once

#include <span>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/pipeline/simulation.h"

namespace gradwire::pipeline {

/// What a generator needs to know.
struct PipelineOptions {
  int ranks = 4;
  int micro_batches = 8;
  int chunks = 2;  ///< interleaved: stages per rank.
  int kept = 0;    ///< zero_bubble: micro-batches that a rank may keep; 0: twice the ranks.
  PipelineCosts costs;
};

struct Generator {
  std::string_view name;
  std::string_view summary;
  PipelineSchedule (*make)(const PipelineOptions& options);
};

/// All generators.
std::span<const Generator> generators();

/// Generates a schedule by name ("1f1b"). Fails with invalid_argument for an unknown name, with the
/// nearest known one, and for options that the generator does not support.
Result<PipelineSchedule> make_pipeline(std::string_view name, PipelineOptions options);

}  // namespace gradwire::pipeline
