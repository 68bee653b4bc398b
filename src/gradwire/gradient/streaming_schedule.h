#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/gradient/local_steps.h"

namespace gradwire {

/// When which fragment of a model is averaged: fragment p of F after steps t = o_p, o_p + H, ...
/// with o_p = (p + 1) H / F (rounded down), so that with one fragment it is after steps H, 2H, ...;
/// and its average is taken over `overlap_steps` later (Douillard et al., arXiv:2501.18512,
/// algorithm 2). A pure function of the number of steps done (from 1). At most one fragment is
/// under way at a time, which check_local_steps() sees to.
class StreamingSchedule {
 public:
  /// Throws Exception(invalid_argument), as check_local_steps() does.
  explicit StreamingSchedule(const LocalStepsConfig& config);

  /// The fragment whose averaging begins after step `step`.
  std::optional<std::size_t> begins_after(std::int64_t step) const;

  /// The fragment whose average is taken over after step `step`; if one begins too, then it is this
  /// one, and it begins first.
  std::optional<std::size_t> ends_after(std::int64_t step) const;

  /// H, after which everything has been averaged once.
  std::int64_t round() const { return steps_; }

 private:
  std::int64_t steps_;
  std::int64_t fragments_;
  std::int64_t overlap_;
};

/// Cuts parameters of these sizes (elements) into `fragments` runs of about equal size, in order:
/// the fragment of each. A fragment may stay empty where parameters are large.
std::vector<std::size_t> plan_fragments(const std::vector<std::int64_t>& sizes,
                                        std::int64_t fragments);

}  // namespace gradwire
