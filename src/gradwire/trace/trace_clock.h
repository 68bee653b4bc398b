#pragma once

#include <span>

#include "gradwire/base/types.h"

namespace gradwire {

/// A request to the rank with the reference clock, and its reply.
struct ClockSample {
  Time sent{};      ///< On this rank's clock.
  Time theirs{};    ///< On the reference clock, between the other two.
  Time received{};  ///< On this rank's clock.
};

/// Offset of two clocks at one moment.
struct ClockReading {
  Time at{};         ///< On this rank's clock.
  Duration ahead{};  ///< Reference clock minus this rank's, at `at`.
  Duration error{};  ///< Maximum error of `ahead`.
};

/// Uses the sample with the shortest round trip: theirs - (sent + received) / 2, accurate to half
/// of the round trip (Cristian, "Probabilistic clock synchronization", Distributed Computing 3,
/// 1989; the clock filter of NTP, RFC 5905, section 10). `samples` must not be empty.
ClockReading read_clock(std::span<const ClockSample> samples);

/// Offset of a rank's clock from the reference, read when recording began and ended. It is constant
/// if both readings, with their errors, allow one offset. Else it drifts linearly between the
/// readings and is constant outside.
struct ClockAlignment {
  ClockReading first;
  ClockReading last;

  /// Returns the reference's time when this rank's clock showed `own`. Preserves the order of
  /// moments if the relative drift of the clocks is below 1.
  Time aligned(Time own) const;

  /// Maximum error of the two readings.
  Duration error() const;
};

}  // namespace gradwire
