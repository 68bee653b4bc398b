#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/cli/bench/peers.h"
#include "gradwire/cli/bench/pipeline_options.h"
#include "gradwire/cli/bench/pipeline_report.h"

namespace gradwire::cli {

/// Returns the name of a schedule in torch.distributed.pipelining ("1F1B"); nullopt if it has none.
std::optional<std::string> torch_schedule(std::string_view schedule);

/// Measures the schedules on gradwire and on the peers of --compare in turn, in --rounds rounds, so
/// that disturbances on the machine affect all systems alike. A peer that is not installed is
/// skipped with a line on stderr. Returns gradwire's rows, followed by those of the peers for the
/// schedules that they have. Throws Exception if a system fails, UsageError for unknown peers.
std::vector<PipelineRow> compare_pipelines(const PipelineBenchOptions& options);

}  // namespace gradwire::cli
