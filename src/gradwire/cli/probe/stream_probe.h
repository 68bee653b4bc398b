#pragma once

#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/cli/probe/wire.h"

namespace gradwire::cli {

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
Result<RoundTrips> measure_round_trips(Wire& wire, net::StreamId stream, int count,
                                       TimeOfDay own_time = time_of_day);
Status answer_round_trips(Wire& wire, net::StreamId stream, int count,
                          TimeOfDay own_time = time_of_day);

/// Keeps one stream full of blocks for a Sink, until told to stop.
class Flood {
 public:
  explicit Flood(net::StreamId stream);

  /// Writes what the stream accepts without blocking; returns true if it accepted any bytes.
  /// `over`: finish the current block and send one last block.
  Result<bool> advance(Wire& wire, bool over);
  bool done() const { return done_; }

 private:
  net::StreamId stream_;
  std::vector<std::byte> block_;
  std::size_t sent_ = 0;  ///< Bytes of the current block.
  bool last_ = false;
  bool done_ = false;
};

/// Reads the blocks of a Flood and measures their rate.
class Sink {
 public:
  explicit Sink(net::StreamId stream);

  /// Reads available bytes; returns true if there were any.
  Result<bool> advance(Wire& wire);
  bool ended() const { return ended_; }

  /// Returns the rate in bytes per second: the minimum over the whole time and over its later part.
  /// At first a shaped link passes a bucketful at once; and data that arrives in one burst after a
  /// retransmission was sent earlier. 0 if too few blocks arrived.
  double rate() const;

 private:
  double rate_since(std::vector<Time>::const_iterator first) const;

  net::StreamId stream_;
  std::vector<std::byte> block_;
  std::size_t got_ = 0;  ///< Bytes of the current block.
  bool ended_ = false;
  std::vector<Time> arrivals_;  ///< Arrival times of whole blocks.
};

/// Runs floods for `duration` and sinks to their end, all concurrently. Fails with the errors of
/// Wire.
Status run_streams(Wire& wire, std::vector<Flood>& floods, std::vector<Sink>& sinks,
                   Duration duration);

}  // namespace gradwire::cli
