#pragma once

#include <vector>

#include "gradwire/cli/probe/wire.h"

namespace gradwire {

/// Keeps one stream full of blocks, to be taken in by a Sink, until told that it is over.
class Flood {
 public:
  explicit Flood(StreamId stream);

  /// Hands over what the stream takes now; whether that was anything. `over`: the block under way
  /// is to be the last but one.
  Result<bool> advance(Wire& wire, bool over);
  bool done() const { return done_; }

 private:
  StreamId stream_;
  std::vector<std::byte> block_;
  std::size_t sent_ = 0;  ///< Of the block under way.
  bool last_ = false;
  bool done_ = false;
};

/// Takes in what a Flood sends, and measures how fast it comes.
class Sink {
 public:
  explicit Sink(StreamId stream);

  /// Takes what is there; whether that was anything.
  Result<bool> advance(Wire& wire);
  bool ended() const { return ended_; }

  /// Bytes per second: of the whole time, or of its later part if that is less. At first a shaped
  /// link lets a bucketful through at once; and what comes in one heap after a packet was lost and
  /// sent again was under way before. 0 if too little came to tell.
  double rate() const;

 private:
  double rate_since(std::vector<Time>::const_iterator first) const;

  StreamId stream_;
  std::vector<std::byte> block_;
  std::size_t got_ = 0;  ///< Of the block under way.
  bool ended_ = false;
  std::vector<Time> arrivals_;  ///< Of whole blocks.
};

/// Runs floods for `duration` and sinks to their end, all at once. Errors: those of Wire.
Status run_streams(Wire& wire, std::vector<Flood>& floods, std::vector<Sink>& sinks,
                   Duration duration);

}  // namespace gradwire
