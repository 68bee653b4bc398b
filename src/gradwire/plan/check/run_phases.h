#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/base/error.h"

namespace gradwire::plan {

/// Breakdown of a step, in seconds; negative: unknown. forward + backward + update + data + other +
/// exposed = step, as far as they are known.
struct StepPhases {
  double forward = -1, backward = -1;
  double update = -1;
  double data = -1;  ///< Waiting for batches.
  double other = -1;
  double compute = -1;        ///< T_s: all of the above except `data`.
  double communication = -1;  ///< Communication in flight, hidden or not.
  double exposed = -1;        ///< Computing waited for communication.
  double step = -1;
};

/// Configuration of a case, as far as the run records it.
struct RunCase {
  std::string codec;                               ///< Empty: unknown.
  std::string overlap;                             ///< Empty: unknown.
  int accumulate = 0, local_steps = 0, ranks = 0;  ///< 0: unknown.
  int fragments = 1, overlap_steps = 0;            ///< Valid if local_steps is known.
  double gradient_bytes = 0;                       ///< Size of all gradients; 0: unknown.
  double single = 0;  ///< Seconds of a step without communication, measured separately.
};

struct MeasuredRun {
  std::string name;  ///< "int8, full": distinguishes it within the file; may be empty.
  RunCase how;
  StepPhases phases;  ///< Medians or means, of the slowest rank or over ranks.
};

/// Parses the record of a run: the JSON of `gradwire bench step --json` (one run per row of
/// gradwire), a trace (`--trace`, of `gradwire bench step` or `gradwire train`), run.json in a
/// run's output folder, or the JSON of `gradwire train --json`. Error: invalid_argument, with what
/// was expected or which key is wrong. `source`: the name in error messages.
Result<std::vector<MeasuredRun>> parse_run(std::string_view text, const std::string& source);

/// Parses a file as above, or run.json in a folder. Error: also system.
Result<std::vector<MeasuredRun>> read_run(const std::string& path);

/// Returns the steps of a trace (docs/trace.md) as one run: for each phase, the median over ranks
/// of the ranks' medians over steps. Error: invalid_argument, if an event is incomplete.
Result<std::vector<MeasuredRun>> phases_of_trace(const nlohmann::json& trace);

}  // namespace gradwire::plan
