#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gradwire/gradient/shard_exchange.h"
#include "gradwire/gradient/unit_pool.h"
#include "gradwire/gradient/zero_units.h"

namespace gradwire {

/// An emulated model's gradients, unit by unit: backward makes room for one, fills it, sends it off
/// to be reduced, and gets this rank's part of the mean.
class ZeroGradients {
 public:
  /// `keep`: a rank has all of them all the time, as in stage 1; otherwise a unit's memory is taken
  /// when backward comes to it and is another one's as soon as it is reduced.
  ZeroGradients(const ZeroUnits& units, ShardExchange& exchange, bool keep);

  /// Backward comes to the unit.
  void make(std::size_t unit);
  /// It is complete. `urgency`: of its reduction.
  void reduce(std::size_t unit, int urgency);

  bool in_flight(std::size_t unit) const { return gradients_[unit].in_flight; }
  /// Units that are being reduced, in the order in which they left.
  const std::vector<std::size_t>& flying() const { return flying_; }

  bool reduced(std::size_t unit) { return exchange_.reduced(unit); }
  /// Waits, and returns what stands for the optimiser's work: every cache line of this rank's part
  /// is read.
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
  std::vector<std::size_t> flying_;
  UnitPool pool_;
};

}  // namespace gradwire
