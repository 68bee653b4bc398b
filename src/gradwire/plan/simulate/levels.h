#pragma once

#include <string>

#include "gradwire/plan/simulate/simulated_ranks.h"

namespace gradwire {

/// Trees of all kinds, whose depth grows by a level when hosts double, on equal links: they are
/// played through on 128 to 255 hosts, and each further doubling takes as long as that from 64 to
/// 128. With all of tens of thousands of ranks there would be time for only a segment or two of a
/// message, which would then wait for itself at each level.
class Levels {
 public:
  static bool apply_to(const std::string& algorithm, const Fabric& fabric);

  Levels(Collective collective, const std::string& algorithm, const Fabric& fabric);

  /// On `bytes` bytes of all chunks together.
  double seconds(double bytes, const CostOptions& options) const;

 private:
  /// All ranks of so many hosts.
  struct Played {
    Fabric fabric;
    SimulatedRanks ranks;

    Played(Collective collective, const std::string& algorithm, Fabric of, int hosts);
    double seconds(double bytes, const CostOptions& options) const {
      return ranks.seconds(fabric, bytes, options);
    }
  };

  Played base_, half_, whole_;
  double doublings_;  ///< From base_ to all.
};

}  // namespace gradwire
