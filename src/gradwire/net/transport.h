#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire::net {

/// One of the streams to a peer. Rail i uses the i-th of the chosen network interfaces.
struct StreamId {
  Rank peer = -1;
  int rail = 0;

  bool operator==(const StreamId&) const = default;
};

/// Byte streams from one rank to each of its peers, one per rail: reliable, ordered, without
/// message boundaries. There is no order among rails. Calls never block. A call may transfer fewer
/// bytes than requested; an event follows when more is possible. Not thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Returns the number of streams to `peer`, including broken ones; at least 1, the same at both
  /// ends.
  virtual int rails(Rank peer) const = 0;

  /// Writes `pieces`, in order, to a stream. Returns the number of accepted bytes. If not all were
  /// accepted, a `writable` event follows, and the next write must continue with the first byte
  /// that was not: the last accepted bytes may be sent only then. Fails with disconnected or
  /// corrupted; the error contains the peer and the cause.
  virtual Result<std::size_t> write(StreamId stream, std::span<const ConstBytes> pieces) = 0;

  /// Says that the next write will not continue the last one. Returns the bytes of the last write
  /// that are sent although it did not count them as taken (an encrypted stream: at most 1).
  virtual std::size_t abandon_write(StreamId) { return 0; }

  /// Reads from a stream into `pieces`, in order. Returns the number of bytes read. If fewer than
  /// fit, no more are available, and a `readable` event follows when there are. Fails with
  /// disconnected if the stream has ended or broken and all its bytes have been read, or with
  /// corrupted if the received bytes are provably damaged.
  virtual Result<std::size_t> read(StreamId stream, std::span<const Bytes> pieces) = 0;

  /// Returns true if the bytes of a stream are read in place (shared memory), with peek() and
  /// consume() instead of read().
  virtual bool reads_in_place(StreamId) const { return false; }

  /// Returns the available contiguous bytes. If there are none, a `readable` event follows. Valid
  /// until consume(). Fails as read().
  virtual Result<ConstBytes> peek(StreamId) { return ConstBytes(); }

  /// Releases the first `bytes` bytes of peek()'s result, so that the sender can reuse their
  /// memory.
  virtual void consume(StreamId, std::size_t /*bytes*/) {}

  /// Requests the next `readable` event of a stream only when about `bytes` bytes are available (1:
  /// any number), for a receiver that expects many more: a wake-up costs as much as reading 50 KB.
  /// Fewer bytes are reported after kMaxExpectDelay: a wrong estimate delays data only briefly.
  /// `share`: the part of the last switch's queue that the peer may have in flight while others
  /// send too (incast control); 1: it is the only sender, without limit.
  virtual void expect(StreamId, std::size_t /*bytes*/, double /*share*/) {}
  static constexpr Duration kMaxExpectDelay = std::chrono::milliseconds(4);

  /// Returns true if frames need checksums, because bytes may be damaged in transit. The same at
  /// both ends.
  virtual bool needs_checksums(StreamId) const { return true; }

  /// Returns the bytes of a GSO burst. Writes in multiples of it leave no small packet, which would
  /// cost as much to send and receive as a full one. 1: any size.
  virtual std::size_t gso_burst_bytes(StreamId) const { return 1; }

  /// Returns the number of bytes of a stream that the peer's host has acknowledged. The peer can
  /// read them even if the stream breaks afterwards.
  virtual std::size_t delivered(StreamId stream) = 0;

  /// Returns the minimum round-trip time of a stream; zero: unknown.
  virtual Duration round_trip(StreamId) const { return Duration::zero(); }

  /// Closes a stream. Accepted bytes are still delivered if the peer is alive. Unread bytes and
  /// those that arrive later are discarded, although they count as delivered at the peer. Later
  /// reads and writes fail with aborted. Idempotent.
  virtual void close(StreamId stream) = 0;

  /// Returns a description of the peer for messages: "rank 3 (host b, 10.77.0.4:41234 over gw0)".
  virtual std::string describe(StreamId stream) const = 0;
};

/// Readiness of a stream.
struct ReadyEvent {
  Rank peer = -1;
  bool readable = false;
  bool writable = false;
  int rail = 0;

  StreamId stream() const { return {peer, rail}; }
};

/// A transport over the operating system, with blocking waits for events.
class PollingTransport : public Transport {
 public:
  /// Waits for events, at most `timeout` (zero: does not wait), and replaces `events` with them.
  /// Events are edge-triggered: each is reported once, so the caller must read or write until no
  /// more is possible. Thread-safe with respect to other calls, as is wake().
  virtual void poll(Duration timeout, std::vector<ReadyEvent>& events) = 0;

  /// Makes the current poll(), or else the next one, return at once. Thread-safe.
  virtual void wake() = 0;
};

}  // namespace gradwire::net
