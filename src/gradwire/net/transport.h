#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// Byte streams from one rank to each of its peers: reliable, in order, without boundaries. Never
/// blocks; may take or give fewer bytes than asked for ("not now"), in which case an event follows
/// when more is possible. Not thread-safe: one caller at a time.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Hands `pieces`, in order, to the stream towards `peer`. Returns how many bytes were taken; if
  /// not all, a `writable` event follows. Errors: disconnected, with the peer and cause named.
  virtual Result<std::size_t> write(Rank peer, std::span<const ConstBytes> pieces) = 0;

  /// Fills `pieces`, in order, from the stream from `peer`. Returns how many bytes came; if fewer
  /// than fit, there are none now, and a `readable` event follows when there are.
  /// Errors: disconnected, when the stream has ended or broken and all its bytes have been read.
  virtual Result<std::size_t> read(Rank peer, std::span<const Bytes> pieces) = 0;

  /// Ends the stream to `peer`. Bytes already taken are still delivered if the peer lives.
  /// Idempotent.
  virtual void close(Rank peer) = 0;

  /// The peer for people: "rank 3 (host b, 10.77.0.4:41234 over gw0)".
  virtual std::string describe(Rank peer) const = 0;
};

/// A peer on whose stream something became possible.
struct ReadyEvent {
  Rank peer = -1;
  bool readable = false;
  bool writable = false;
};

/// A transport over the operating system, whose events can be waited for.
class PollingTransport : public Transport {
 public:
  /// Waits until something is possible, at most `timeout` (zero: does not wait), and replaces
  /// `events` by what is. Events are edges: each is reported once, so act on all of it. May be
  /// called while another thread uses the transport; only poll() and wake() may be.
  virtual void poll(Duration timeout, std::vector<ReadyEvent>& events) = 0;

  /// Makes a poll() under way, or else the next one, return at once. From any thread.
  virtual void wake() = 0;
};

}  // namespace gradwire
