#include "gradwire/trace/trace_clock.h"

#include <algorithm>
#include <optional>

#include "gradwire/base/check.h"
#include "gradwire/trace/trace_collection.h"

namespace gradwire {

ClockReading read_clock(std::span<const ClockSample> samples) {
  GRADWIRE_CHECK(!samples.empty());
  const auto round_trip = [](const ClockSample& sample) { return sample.received - sample.sent; };
  const auto& best = *std::ranges::min_element(samples, {}, round_trip);
  const auto half = round_trip(best) / 2;
  const auto at = best.sent + half;
  // + 1 ns: half of an odd round trip is rounded down.
  return {.at = at, .ahead = best.theirs - at, .error = half + Duration(1)};
}

namespace {

/// The offset in the middle of those that both readings allow, if there are any: a drift computed
/// from their errors would distort durations.
std::optional<Duration> common_offset(const ClockReading& a, const ClockReading& b) {
  const Duration least = std::max(a.ahead - a.error, b.ahead - b.error);
  const Duration most = std::min(a.ahead + a.error, b.ahead + b.error);
  if (least > most) return std::nullopt;
  return least + (most - least) / 2;
}

}  // namespace

Time ClockAlignment::aligned(Time own) const {
  if (const auto constant = common_offset(first, last)) return own + *constant;
  if (own <= first.at) return own + first.ahead;
  if (own >= last.at) return own + last.ahead;
  const double passed = static_cast<double>((own - first.at).count()) /
                        static_cast<double>((last.at - first.at).count());
  const double drift = static_cast<double>((last.ahead - first.ahead).count());
  return own + first.ahead + Duration(static_cast<Duration::rep>(passed * drift));
}

Duration ClockAlignment::error() const {
  return std::max(first.error, last.error);
}

}  // namespace gradwire
