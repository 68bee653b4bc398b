#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/emulation/step_measurement.h"

namespace gradwire::cli {

/// A case as measured on one system.
struct StepRow {
  std::string system = "gradwire";
  emulation::StepCase what;
  emulation::StepFigures
      figures;  ///< With several rounds: figures of the round with the median time.
  int rounds = 1;
};

/// Returns the round with the median step time. Requires at least one round.
StepRow median_round(std::span<const StepRow> rounds);

/// A text table: what was measured, the head, and one line per row. `limit` (bytes per second)
/// above 0 adds the bound; `zero` adds the ZeRO stage, bytes relative to DDP's, and memory;
/// `servers` adds their number, mode, updates and staleness.
struct StepTable {
  double limit = 0;
  bool zero = false;
  bool servers = false;

  std::string head(const std::string& profile, int ranks) const;
  std::string line(const StepRow& row) const;
};

/// Returns the bytes that a ZeRO stage sends in theory, in multiples of an all-reduce of the
/// gradients (Rajbhandari et al., arXiv:1910.02054, section 7).
double zero_volume(int stage);

/// Returns {"rows": [...]}: times in milliseconds (docs/ladder.md).
std::string step_json(std::span<const StepRow> rows, double limit);

/// Parses the output of a program that ends with such JSON, one row per case. Fails with system if
/// the rows are missing.
Result<std::vector<StepRow>> parse_step_rows(const std::string& output, const std::string& system,
                                             std::span<const emulation::StepCase> cases);

/// Returns a label that distinguishes the case, such as "bf16, no overlap".
std::string label_of(const emulation::StepCase& what);

/// Returns the efficiencies as a bar chart (SVG), each with its bound if `limit` is above 0.
std::string step_svg(std::span<const StepRow> rows, const std::string& title, double limit);

}  // namespace gradwire::cli
