#pragma once

#include <cstddef>

namespace gradwire {

/// The optimizer of a model in units. It knows where their gradients and values are (UnitMemory).
/// Not thread-safe.
class UnitOptimizer {
 public:
  virtual ~UnitOptimizer() = default;

  /// Steps the unit, or this rank's shard of it, with `factor` times its gradient, and clears the
  /// gradient. Returns false if there is none, so that nothing has changed.
  virtual bool step(std::size_t unit, double factor) = 0;

  /// Returns true if step() communicates, so that all ranks must step units in one order.
  virtual bool communicates() const { return false; }
};

}  // namespace gradwire
