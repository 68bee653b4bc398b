#pragma once

#include <vector>

#include "gradwire/cli/probe/wire.h"

namespace gradwire {

/// Keeps one stream full of blocks for a Sink, until told to stop.
class Flood {
 public:
  explicit Flood(StreamId stream);

  /// Writes what the stream accepts without blocking; returns true if it accepted any bytes.
  /// `over`: finish the current block and send one last block.
  Result<bool> advance(Wire& wire, bool over);
  bool done() const { return done_; }

 private:
  StreamId stream_;
  std::vector<std::byte> block_;
  std::size_t sent_ = 0;  ///< Bytes of the current block.
  bool last_ = false;
  bool done_ = false;
};

/// Reads the blocks of a Flood and measures their rate.
class Sink {
 public:
  explicit Sink(StreamId stream);

  /// Reads available bytes; returns true if there were any.
  Result<bool> advance(Wire& wire);
  bool ended() const { return ended_; }

  /// Returns the rate in bytes per second: the minimum over the whole time and over its later part.
  /// At first a shaped link passes a bucketful at once; and data that arrives in one burst after a
  /// retransmission was sent earlier. 0 if too few blocks arrived.
  double rate() const;

 private:
  double rate_since(std::vector<Time>::const_iterator first) const;

  StreamId stream_;
  std::vector<std::byte> block_;
  std::size_t got_ = 0;  ///< Bytes of the current block.
  bool ended_ = false;
  std::vector<Time> arrivals_;  ///< Arrival times of whole blocks.
};

/// Runs floods for `duration` and sinks to their end, all concurrently. Fails with the errors of
/// Wire.
Status run_streams(Wire& wire, std::vector<Flood>& floods, std::vector<Sink>& sinks,
                   Duration duration);

}  // namespace gradwire
