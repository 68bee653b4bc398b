#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire::report {

/// A case measured by `gradwire bench step`, read from its JSON (docs/ladder.md). Times are
/// milliseconds per step, of the slowest rank.
struct LadderRow {
  std::string system;  ///< "gradwire", or the system it was compared with.
  std::string codec;
  int accumulate = 1;
  int local_steps = 1;
  int fragments = 1, overlap_steps = 0;  ///< Parameters of local steps.
  std::string overlap;
  int zero_stage = 0;
  int ranks = 1;
  double single_ms = 0;
  double step_ms = 0;
  double exposed_ms = 0;
  double eta = 0;              ///< 0 .. 1; measurement noise may exceed 1.
  double bytes_per_step = -1;  ///< Payload sent by a rank; < 0: unknown.
  double bound = 0;            ///< Maximum eta on those links; 0 if unknown.
};

/// Error: invalid_argument, which names the key.
Result<std::vector<LadderRow>> parse_ladder(std::string_view text);

/// Returns what distinguishes the case: "int8, 2 passes", "ZeRO-3, bf16".
std::string label_of(const LadderRow& row);

}  // namespace gradwire::report
