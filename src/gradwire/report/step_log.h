#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/report/run_record.h"

namespace gradwire::report {

/// Keeps steps in bounded memory. Above `max_steps` steps, drops every second one, and from then on
/// keeps every second of those that it would have kept. It keeps single steps, not means, so their
/// times have the same distribution as those of all steps.
class StepLog {
 public:
  static constexpr std::size_t kMaxSteps = 8192;

  /// `max_steps` must be at least 2.
  explicit StepLog(std::size_t max_steps = kMaxSteps) : max_steps_(max_steps) {}

  void add(const RunStep& step);

  const std::vector<RunStep>& steps() const { return steps_; }

  /// One of this many steps is kept; a power of two.
  std::int64_t every() const { return every_; }

 private:
  std::size_t max_steps_;
  std::int64_t seen_ = 0;
  std::int64_t every_ = 1;
  std::vector<RunStep> steps_;
};

}  // namespace gradwire::report
