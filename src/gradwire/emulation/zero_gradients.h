#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gradwire/emulation/unit_pool.h"
#include "gradwire/emulation/zero_units.h"
#include "gradwire/gradient/shard_exchange.h"

namespace gradwire {

/// An emulated model's gradients, unit by unit. Backward allocates a unit, fills it, starts its
/// reduction, and gets this rank's part of the mean.
class ZeroGradients {
 public:
  /// `keep`: gradients of all units stay allocated, as in stage 1. Otherwise a unit's memory is
  /// taken when backward reaches it and is reused as soon as it is reduced.
  ZeroGradients(const ZeroUnits& units, ShardExchange& exchange, bool keep);

  /// Called when backward reaches the unit.
  void make(std::size_t unit);
  /// Starts the reduction of a complete unit. `priority`: as OperationOptions::priority.
  void reduce(std::size_t unit, int priority);

  bool in_flight(std::size_t unit) const { return gradients_[unit].in_flight; }
  /// Units that are being reduced, in the order in which they started.
  const std::vector<std::size_t>& units_in_flight() const { return in_flight_; }

  bool reduced(std::size_t unit) { return exchange_.reduced(unit); }
  /// Waits for the mean. Stands for the optimizer: reads every cache line of this rank's part and
  /// returns a value that depends on them.
  float take_part(std::size_t unit);

  std::size_t peak_bytes() const;

 private:
  struct Gradient {
    std::span<float> whole;
    std::vector<float> part;
    bool in_flight = false;
  };

  const ZeroUnits& units_;
  ShardExchange& exchange_;
  bool keep_;
  std::vector<Gradient> gradients_;
  std::vector<std::size_t> in_flight_;
  UnitPool pool_;
};

}  // namespace gradwire
