#pragma once

#include <optional>
#include <vector>

#include "gradwire/cli/bench/peers.h"
#include "gradwire/cli/bench/step_options.h"
#include "gradwire/cli/bench/step_report.h"

namespace gradwire {

/// What PyTorch's DistributedDataParallel has that is nearest to a case: the same codec or nothing.
/// It overlaps with backward at best.
std::optional<StepCase> ddp_case(const StepCase& what);

/// The commands that measure one case and end their output with its row: `gradwire bench step`
/// itself, and bench/ddp_step.py, whose ranks `gradwire run` starts. `program`: gradwire's path,
/// the same on every host.
Words step_command(const StepOptions& options, const StepCase& what, const std::string& program);
Words ddp_command(const StepOptions& options, const StepCase& what, const LayerProfile& profile,
                  const std::string& program, const std::string& script);

/// Measures the cases on gradwire and on what --compare names, in turn, as often as --rounds says,
/// so that what else the machine does meets all of them. What is not installed is left out, and a
/// line on stderr says why. Returns gradwire's row of each case, and behind it those of the peers
/// that have it. Throws Exception: what the systems fail with; WrongCommandLine for unknown peers.
std::vector<StepRow> compare_steps(const StepOptions& options, const std::vector<StepCase>& cases,
                                   const LayerProfile& profile);

}  // namespace gradwire
