#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire {

/// A case that `gradwire bench step` measured, as its JSON says (docs/ladder.md). Times in
/// milliseconds, of the slowest rank for a step.
struct LadderRow {
  std::string system;  ///< "gradwire", or the peer that it was compared with.
  std::string codec;
  int accumulate = 1;
  int local_steps = 1;
  int fragments = 1, overlap_steps = 0;  ///< Of local steps.
  std::string overlap;
  int zero_stage = 0;
  int ranks = 1;
  double single_ms = 0;
  double step_ms = 0;
  double exposed_ms = 0;
  double eta = 0;             ///< 0 .. 1, or a little more by noise.
  double bytes_per_step = 0;  ///< Payload that a rank sends.
  double bound = 0;           ///< The most that eta can be on those links; 0: not known.
};

/// Errors: invalid_argument, which names the key.
Result<std::vector<LadderRow>> parse_ladder(std::string_view text);

/// "int8, 2 passes", "ZeRO-3, bf16": what tells a case from others.
std::string label_of(const LadderRow& row);

}  // namespace gradwire
