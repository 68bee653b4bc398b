#pragma once

#include <span>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/pipeline/simulation.h"

namespace gradwire::pipeline {

/// The parameters of a generator.
struct PipelineOptions {
  int ranks = 4;
  int micro_batches = 8;
  int chunks = 2;  ///< interleaved: stages per rank.
  /// Micro-batches that a rank may keep. 0: in 1f1b and 2bw as many as hide the transfers, in
  /// zero_bubble and auto twice the ranks, in zero_bubble_v and pipedream as many as ranks.
  int kept = 0;
  PipelineCosts costs;
};

struct Generator {
  std::string_view name;
  std::string_view summary;
  PipelineSchedule (*make)(const PipelineOptions& options);
};

/// All generators.
std::span<const Generator> generators();

/// Generates a schedule by name ("1f1b"), which may end in a number: of chunks ("interleaved:4"),
/// else of micro-batches that a rank may keep ("zero_bubble:12", "1f1b:4"). Fails with
/// invalid_argument for an unknown name, with the nearest known one, and for options that the
/// generator does not support.
Result<PipelineSchedule> make_pipeline(std::string_view name, PipelineOptions options);

/// Returns pipedream's schedule with another rule for its weights: stash, predict or newest.
PipelineSchedule with_rule(PipelineSchedule schedule, WeightRule rule);

/// Returns the number of chunks of make_pipeline()'s schedule: its stages per rank.
int chunks_of(std::string_view name, const PipelineOptions& options);

}  // namespace gradwire::pipeline
