#pragma once

#include <optional>
#include <vector>

#include "gradwire/cli/bench/peers.h"
#include "gradwire/cli/bench/step_options.h"
#include "gradwire/cli/bench/step_report.h"

namespace gradwire::cli {

/// Returns the case of PyTorch's DistributedDataParallel that is nearest to `what`; nullopt if DDP
/// lacks the codec, or for local steps or ZeRO. Overlap full becomes backward.
std::optional<emulation::StepCase> ddp_case(const emulation::StepCase& what);

/// Return the commands that measure one case and end their output with its row: `gradwire bench
/// step` itself, and bench/ddp_step.py, whose ranks `gradwire run` starts. `program`: gradwire's
/// path, the same on every host.
Words step_command(const StepOptions& options, const emulation::StepCase& what,
                   const std::string& program);
Words ddp_command(const StepOptions& options, const emulation::StepCase& what,
                  const workload::LayerProfile& profile, const std::string& program,
                  const std::string& script);

/// Measures the cases on gradwire and on the peers of --compare in turn, in --rounds rounds, so
/// that disturbances on the machine affect all systems alike. A peer that is not installed is
/// skipped with a line on stderr. Returns gradwire's row of each case, followed by the rows of the
/// peers that have the case. Throws Exception if a system fails, UsageError for unknown
/// peers.
std::vector<StepRow> compare_steps(const StepOptions& options,
                                   const std::vector<emulation::StepCase>& cases,
                                   const workload::LayerProfile& profile);

}  // namespace gradwire::cli
