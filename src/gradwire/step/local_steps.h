#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::step {

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

/// When each fragment of a model is averaged. Fragment p of F starts after steps t = o_p, o_p + H,
/// ... with o_p = (p + 1) H / F (rounded down); a single fragment thus starts after steps H, 2H,
/// ... Its average is applied `overlap_steps` later (Douillard et al., arXiv:2501.18512, algorithm
/// 2). A pure function of the number of steps done (from 1). At most one fragment is in flight at a
/// time, which check_local_steps() ensures.
class StreamingSchedule {
 public:
  /// Throws Exception(invalid_argument) as check_local_steps() does.
  explicit StreamingSchedule(const LocalStepsConfig& config);

  /// Returns the fragment whose averaging starts after step `step`, if any.
  std::optional<std::size_t> begins_after(std::int64_t step) const;

  /// Returns the fragment whose average is applied after step `step`, if any. If a fragment also
  /// starts after this step, it is the same one, and it starts first.
  std::optional<std::size_t> ends_after(std::int64_t step) const;

  /// H, the number of steps in which every fragment is averaged once.
  std::int64_t round() const { return steps_; }
  std::size_t fragments() const { return static_cast<std::size_t>(fragments_); }

 private:
  std::int64_t steps_;
  std::int64_t fragments_;
  std::int64_t overlap_;
};

/// Cuts parameters of these sizes (elements) into `fragments` contiguous runs of about equal size,
/// in order. Returns the fragment of each parameter. A fragment may be empty if parameters are
/// large.
std::vector<std::size_t> plan_fragments(const std::vector<std::int64_t>& sizes,
                                        std::int64_t fragments);

}  // namespace gradwire::step
