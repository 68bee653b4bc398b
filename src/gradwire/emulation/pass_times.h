#pragma once

#include <cmath>
#include <map>

#include "gradwire/base/random.h"
#include "gradwire/base/types.h"

namespace gradwire::emulation {

/// A worker whose passes take `factor` times as long; only `share` of them do, at random.
struct SlowWorker {
  double factor = 1;
  double share = 1;
};

/// How the compute times of workers' passes differ.
struct PassTimes {
  std::map<Rank, SlowWorker> slow;
  bool exponential = false;  ///< Exponentially distributed; otherwise all the same.

  /// Draws a pass of the worker, in units of the mean of one that is not slow.
  double draw(Rank worker, Random& random) const {
    const double pass = exponential ? -std::log(1 - random.unit()) : 1;
    const auto found = slow.find(worker);
    if (found == slow.end()) return pass;
    const auto [factor, share] = found->second;
    return share == 1 || random.unit() < share ? factor * pass : pass;
  }
};

}  // namespace gradwire::emulation
