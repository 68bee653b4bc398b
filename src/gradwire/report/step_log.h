#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/report/run_record.h"

namespace gradwire {

/// Steps in bounded memory: when there are more than `most`, every second one goes, and from then
/// on only every second one of those is taken that would have been. What stays are steps as they
/// were, not means, so that their times spread as those of all.
class StepLog {
 public:
  static constexpr std::size_t kMost = 8192;

  /// `most`: at least 2.
  explicit StepLog(std::size_t most = kMost) : most_(most) {}

  void add(const RunStep& step);

  const std::vector<RunStep>& steps() const { return steps_; }

  /// Every how many steps one is kept: a power of two.
  std::int64_t every() const { return every_; }

 private:
  std::size_t most_;
  std::int64_t seen_ = 0;
  std::int64_t every_ = 1;
  std::vector<RunStep> steps_;
};

}  // namespace gradwire
