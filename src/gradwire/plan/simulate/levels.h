#pragma once

#include <string>

#include "gradwire/plan/simulate/simulated_ranks.h"

namespace gradwire {

/// Trees of all kinds on equal links, whose depth grows by one level when the hosts double.
/// Simulates 128 to 255 hosts; each further doubling takes as long as that from 64 to 128.
/// Simulating tens of thousands of ranks would leave room for one or two segments of a message,
/// which would not pipeline across levels.
class Levels {
 public:
  static bool apply_to(const std::string& algorithm, const Fabric& fabric);

  Levels(Collective collective, const std::string& algorithm, const Fabric& fabric);

  /// Returns the time for `bytes` bytes of all chunks together.
  double seconds(double bytes, const CostOptions& options) const;

 private:
  /// All ranks of `hosts` hosts.
  struct Played {
    Fabric fabric;
    SimulatedRanks ranks;

    Played(Collective collective, const std::string& algorithm, Fabric of, int hosts);
    double seconds(double bytes, const CostOptions& options) const {
      return ranks.seconds(fabric, bytes, options);
    }
  };

  Played base_, half_, whole_;
  double doublings_;  ///< From base_ to all hosts.
};

}  // namespace gradwire
