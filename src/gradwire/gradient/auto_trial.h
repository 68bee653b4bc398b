#pragma once

#include <optional>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// Compares two ways to make steps, by turns: plain, coded, plain, coded, ... so that what drifts
/// meets both alike; the first of each is not counted. Each rank has one; what they have measured
/// is added up, so that all decide the same.
class AutoTrial {
 public:
  /// Counts `steps` steps each way, at least 1.
  explicit AutoTrial(int steps) : wanted_(steps < 1 ? 1 : steps) {}

  /// Whether the next step is to be coded.
  bool next_is_coded() const { return taken_ % 2 == 1; }

  /// How long the step took.
  void add(Duration step);

  bool complete() const { return taken_ == steps(); }

  /// How many there are, both ways together.
  int steps() const { return 2 * (wanted_ + 1); }

  /// Seconds, the median of either way.
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
