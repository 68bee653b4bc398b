#include "gradwire/schedule/cost/bus_bandwidth.h"

#include <bit>

namespace gradwire::schedule {

double bus_factor(Collective collective, int ranks) {
  const double p = ranks;
  if (collective == Collective::all_reduce) return 2 * (p - 1) / p;
  return has_parts(collective) ? (p - 1) / p : 1;
}

int small_operation_hops(Collective collective, int ranks) {
  const int levels = std::bit_width(static_cast<unsigned>(ranks) - 1);
  return collective == Collective::all_reduce ? 2 * levels : levels;
}

}  // namespace gradwire::schedule
