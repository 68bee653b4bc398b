#pragma once

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

/// Measures round trips to a peer that calls answer_round_trips() at the same time.
Result<RoundTrips> measure_round_trips(Wire& wire, StreamId stream, int count);
Status answer_round_trips(Wire& wire, StreamId stream, int count);

}  // namespace gradwire
