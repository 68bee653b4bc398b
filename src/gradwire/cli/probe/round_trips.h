#pragma once

#include "gradwire/base/clock.h"
#include "gradwire/cli/probe/wire.h"

namespace gradwire {

/// What short messages there and back show.
struct RoundTrips {
  Duration median = {};    ///< One way: half of the round trip.
  Duration shortest = {};  ///< One way.
  /// This host's time of day less the peer's, from the shortest round trip: right to within
  /// `shortest`, since the answer cannot have been written at another time than in between.
  Duration clock_offset = {};
};

/// What a host takes for its time of day: time_of_day(), unless a test owns it.
using TimeOfDay = Duration (*)();

/// Measures round trips to a peer that calls answer_round_trips() at the same time.
Result<RoundTrips> measure_round_trips(Wire& wire, StreamId stream, int count,
                                       TimeOfDay own_time = time_of_day);
Status answer_round_trips(Wire& wire, StreamId stream, int count, TimeOfDay own_time = time_of_day);

}  // namespace gradwire
