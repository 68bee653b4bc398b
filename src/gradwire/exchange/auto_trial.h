#pragma once

#include <optional>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// Compares two ways to make steps, alternating: plain, coded, plain, coded, ... so that drift
/// affects both equally. The first step of each kind is not counted. Each rank has its own trial;
/// the caller averages the results over ranks, so that all decide the same.
class AutoTrial {
 public:
  /// Counts `steps` steps of each kind, at least 1.
  explicit AutoTrial(int steps) : wanted_(steps < 1 ? 1 : steps) {}

  /// Returns true if the next step is to be coded.
  bool next_is_coded() const { return taken_ % 2 == 1; }

  /// Records the duration of a step.
  void add(Duration step);

  bool complete() const { return taken_ == steps(); }

  /// Total number of steps, of both kinds, uncounted ones included.
  int steps() const { return 2 * (wanted_ + 1); }

  /// Median seconds of a step, for each kind.
  struct Result {
    double plain = 0;
    double coded = 0;
  };
  Result result() const;

 private:
  int wanted_;
  int taken_ = 0;
  std::vector<double> plain_;
  std::vector<double> coded_;
};

}  // namespace gradwire
