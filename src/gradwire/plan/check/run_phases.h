#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire {

/// Where a step's time goes, in seconds; negative: not known. forward + backward + update + data +
/// other + exposed = step, as far as they are known.
struct StepPhases {
  double forward = -1, backward = -1;
  double update = -1;
  double data = -1;  ///< Waiting for batches.
  double other = -1;
  double compute = -1;        ///< T_s: all of the above but waiting for batches.
  double communication = -1;  ///< Something was under way, hidden or not.
  double exposed = -1;        ///< Computing waited for communication.
  double step = -1;
};

/// How a case was run, as far as the run says.
struct RunCase {
  std::string codec;                               ///< Empty: not known.
  std::string overlap;                             ///< Likewise.
  int accumulate = 0, local_steps = 0, ranks = 0;  ///< 0: not known.
  int fragments = 1, overlap_steps = 0;            ///< If local_steps is known.
  double gradient_bytes = 0;                       ///< Of all parameters; 0: not known.
  double single = 0;  ///< Seconds of a step without communication, measured by itself.
};

struct MeasuredRun {
  std::string name;  ///< "int8, full": what tells it from the file's others; may be empty.
  RunCase how;
  StepPhases phases;  ///< Medians or means, of the slowest rank or over ranks, as the run has them.
};

/// What a run left: the JSON of `gradwire bench step --json` (a run for each row of gradwire's), a
/// trace (`--trace`, of `gradwire bench step` or `gradwire train`), run.json in a run's output
/// folder, or the JSON of `gradwire train --json`. Errors: invalid_argument, which says what was
/// expected or which key is wrong; `source` is what they call it.
Result<std::vector<MeasuredRun>> parse_run(std::string_view text, const std::string& source);

/// The same from a file, or from run.json in a folder. Errors: also system.
Result<std::vector<MeasuredRun>> read_run(const std::string& path);

}  // namespace gradwire
