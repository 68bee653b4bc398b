#pragma once

#include <span>

#include "gradwire/base/types.h"

namespace gradwire {

/// A question to the rank whose clock is the reference, and its answer.
struct ClockSample {
  Time sent{};      ///< On this rank's clock.
  Time theirs{};    ///< On the reference, between the two others.
  Time received{};  ///< On this rank's clock.
};

/// What two clocks have to do with each other at one moment.
struct ClockReading {
  Time at{};         ///< On this rank's clock.
  Duration ahead{};  ///< What the reference shows then, less `at`.
  Duration error{};  ///< `ahead` is wrong by at most this.
};

/// From the sample with the shortest round trip: theirs - (sent + received) / 2, right to within
/// half of the round trip (Cristian, "Probabilistic clock synchronization", Distributed Computing
/// 3, 1989; the clock filter of NTP, RFC 5905, section 10). `samples` must not be empty.
ClockReading read_clock(std::span<const ClockSample> samples);

/// A rank's clock against the reference, read when recording began and when it ended. In between
/// the offset is taken to drift evenly; outside it stays what it was there.
struct ClockAlignment {
  ClockReading first;
  ClockReading last;

  /// What the reference showed when this rank's clock showed `own`. Never turns the order of two
  /// moments round, as long as clocks differ by less than their own speed.
  Time aligned(Time own) const;

  /// The greater error of the two readings.
  Duration error() const;
};

}  // namespace gradwire
