#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/gradient/step_measurement.h"

namespace gradwire {

/// A case as measured on one system.
struct StepRow {
  std::string system = "gradwire";
  StepCase what;
  StepFigures figures;  ///< Of several rounds: those of the round with the median time.
  int rounds = 1;
};

/// The round whose step took the median time. At least one round.
StepRow median_round(std::span<const StepRow> rounds);

/// A table for people: what was measured, the head, and a line a row. `limit` (bytes per second)
/// above 0 adds the bound, `zero` what ZeRO is about: stage, bytes against DDP's, and memory.
struct StepTable {
  double limit = 0;
  bool zero = false;

  std::string head(const std::string& profile, int ranks) const;
  std::string line(const StepRow& row) const;
};

/// What a stage sends by theory, in multiples of an all-reduce of the gradients (Rajbhandari et
/// al., arXiv:1910.02054, section 7).
double zero_volume(int stage);

/// {"rows": [...]}: times in milliseconds (docs/ladder.md).
std::string step_json(std::span<const StepRow> rows, double limit);

/// What a program printed that ends in such JSON, for the cases that it was given. Errors: system,
/// if that is not there.
Result<std::vector<StepRow>> parse_step_rows(const std::string& output, const std::string& system,
                                             std::span<const StepCase> cases);

/// "int8 x2", "bf16, no overlap": what tells a case from others.
std::string label_of(const StepCase& what);

/// The efficiencies as bars, each with its bound if there is a limit: an SVG document.
std::string step_svg(std::span<const StepRow> rows, const std::string& title, double limit);

}  // namespace gradwire
