#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/step/local_steps.h"

namespace gradwire {

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

}  // namespace gradwire
