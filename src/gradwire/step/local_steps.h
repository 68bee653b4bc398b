#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

/// How often ranks with local steps average their parameters, and how they apply the mean. Shared
/// by `gradwire train`, `gradwire bench step` and the planner, so that measurements match training.
struct LocalStepsConfig {
  std::int64_t steps = 1;          ///< H: steps between two averagings of the same parameter.
  double outer_learning_rate = 1;  ///< 1 without momentum: every rank takes the mean (local SGD).
  double outer_momentum = 0;       ///< Nesterov's; DiLoCo's is 0.9, at a rate of 0.7.
  std::int64_t fragments = 1;      ///< F: parts of the model, averaged in turn, H / F steps apart.
  std::int64_t overlap_steps = 0;  ///< Steps from the start of an averaging until its result is
                                   ///< applied.
  double mixing = 0;  ///< Share of its own values that a rank keeps when it applies a mean.
  std::string codec = "none";  ///< For the parameter differences: docs/compression.md.

  /// True if ranks take local steps at all.
  bool enabled = false;

  bool operator==(const LocalStepsConfig&) const = default;
};

/// Throws Exception(invalid_argument) if values are invalid or contradict each other.
void check_local_steps(const LocalStepsConfig& config);

/// Share of a step's compute during which an averaging is in flight and may be hidden: F O / H.
double hiding_share(const LocalStepsConfig& config);

}  // namespace gradwire
