#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/base/lent_span.h"

namespace gradwire::servers {

/// One server's part of each unit: the values, and the optimizer that steps them. With groups of
/// workers, units are slices (Placement).
class ServedShards {
 public:
  virtual ~ServedShards() = default;

  virtual std::size_t units() const = 0;
  /// The part's values. The memory stays the same.
  virtual LentSpan values(std::size_t unit) = 0;
  /// Steps the part with the mean of gradients, which it may overwrite, at `rate` times the
  /// learning rate.
  virtual void step(std::size_t unit, const LentSpan& gradient, double rate) = 0;
  /// Steps the parts of all units, with ServerPolicy::whole_steps. Servers take the same sequence
  /// of steps, so that this may be collective over them.
  virtual void step_all(std::span<const LentSpan> gradients, double rate) {
    for (std::size_t unit = 0; unit < gradients.size(); ++unit) step(unit, gradients[unit], rate);
  }
  /// The values have been replaced.
  virtual void loaded(std::size_t /*unit*/) {}
  /// The part has had so many updates in earlier runs.
  virtual void begun_at(std::size_t /*unit*/, std::int64_t /*version*/) {}
  /// The states have been replaced.
  virtual void states_loaded() {}
  /// The server deals samples from now on, and no worker has got any.
  virtual void dealing_begun() {}
  /// The states of the unit's optimizer, by reference, in the same order on all ranks. States that
  /// the first step would make are there.
  virtual std::vector<LentSpan> states_of(std::size_t /*unit*/) { return {}; }

  /// All units'.
  std::vector<LentSpan> states() {
    std::vector<LentSpan> all;
    for (std::size_t unit = 0; unit < units(); ++unit) {
      for (LentSpan& state : states_of(unit)) all.push_back(std::move(state));
    }
    return all;
  }
};

}  // namespace gradwire::servers
