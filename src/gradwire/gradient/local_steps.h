#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

/// How often ranks that train alone average their parameters, and what they do with the mean: of
/// `gradwire train`, and of the steps that `gradwire bench step` and the planner emulate, so that
/// what is measured is what trains.
struct LocalStepsConfig {
  std::int64_t steps = 1;          ///< H: between two averagings of the same parameter.
  double outer_learning_rate = 1;  ///< 1 without momentum: all take the mean (local SGD).
  double outer_momentum = 0;       ///< Nesterov's; DiLoCo's is 0.9, at a rate of 0.7.
  std::int64_t fragments = 1;      ///< F: parts of the model, averaged in turn, H / F steps apart.
  std::int64_t overlap_steps = 0;  ///< An average is taken over this many steps after it began.
  double mixing = 0;  ///< Share of its own values that a rank keeps when it takes one over.
  std::string codec = "none";  ///< How the differences travel: docs/compression.md.

  /// Whether ranks take steps of their own at all.
  bool enabled = false;

  bool operator==(const LocalStepsConfig&) const = default;
};

/// Throws Exception(invalid_argument) for values that do not go together.
void check_local_steps(const LocalStepsConfig& config);

/// Of a step's compute, the share in which an average is under way and may hide: F O / H.
double hiding_share(const LocalStepsConfig& config);

}  // namespace gradwire
