#pragma once

#include "gradwire/base/clock.h"
#include "gradwire/cli/probe/wire.h"

namespace gradwire {

/// Result of short messages there and back.
struct RoundTrips {
  Duration median = {};    ///< One way: half of the round trip.
  Duration shortest = {};  ///< One way.
  /// This host's time of day minus the peer's, from the shortest round trip: accurate to within
  /// `shortest`, since the answer was written during it.
  Duration clock_offset = {};
};

/// Source of the time of day: time_of_day(), except in tests.
using TimeOfDay = Duration (*)();

/// Measures round trips to a peer that calls answer_round_trips() at the same time.
Result<RoundTrips> measure_round_trips(Wire& wire, StreamId stream, int count,
                                       TimeOfDay own_time = time_of_day);
Status answer_round_trips(Wire& wire, StreamId stream, int count, TimeOfDay own_time = time_of_day);

}  // namespace gradwire
