#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// One of the streams to a peer: rail 0 is the first of the interfaces in use, and so on.
struct StreamId {
  Rank peer = -1;
  int rail = 0;

  bool operator==(const StreamId&) const = default;
};

/// Byte streams from one rank to each of its peers, one a rail: reliable, in order, without
/// boundaries; nothing orders one rail's bytes with another's. Never blocks; may take or give fewer
/// bytes than asked for ("not now"), in which case an event follows when more is possible. Not
/// thread-safe: one caller at a time.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Streams to `peer`, broken ones included; at least 1, the same at both ends.
  virtual int rails(Rank peer) const = 0;

  /// Hands `pieces`, in order, to a stream. Returns how many bytes were taken; if not all, a
  /// `writable` event follows, and the next write must go on with the first that was not: the last
  /// of those taken may be on their way only then. Errors: disconnected, or corrupted, with the
  /// peer and cause named.
  virtual Result<std::size_t> write(StreamId stream, std::span<const ConstBytes> pieces) = 0;

  /// Fills `pieces`, in order, from a stream. Returns how many bytes came; if fewer than fit, there
  /// are none now, and a `readable` event follows when there are.
  /// Errors: disconnected, when the stream has ended or broken and all its bytes have been read;
  /// corrupted, if what came is certainly not what was sent.
  virtual Result<std::size_t> read(StreamId stream, std::span<const Bytes> pieces) = 0;

  /// Whether the bytes of a stream can be looked at where they lie (shared memory), by peek() and
  /// consume() instead of read().
  virtual bool reads_in_place(StreamId) const { return false; }

  /// The bytes that are there now and lie in one piece; none: not now, and a `readable` event
  /// follows. Valid until consume(). Errors: those of read().
  virtual Result<ConstBytes> peek(StreamId) { return ConstBytes(); }

  /// Gives the first `bytes` of what peek() showed back to the sender.
  virtual void consume(StreamId, std::size_t /*bytes*/) {}

  /// Asks for the next `readable` event of a stream only when about `bytes` are there (1: any), for
  /// who expects many more: being woken costs as much as reading 50 KB. What is less is reported
  /// after kPatience, so that nothing is ever stuck behind a wrong guess. `share`: of what the last
  /// switch can hold, the part that the peer is asked to have under way at most, where others send
  /// at the same time; 1: it is alone, and there is no limit.
  virtual void expect(StreamId, std::size_t /*bytes*/, double /*share*/) {}
  static constexpr Duration kPatience = std::chrono::milliseconds(4);

  /// Whether bytes may be damaged on their way, so that frames need checksums. The same at both
  /// ends.
  virtual bool needs_checksums(StreamId) const { return true; }

  /// Bytes of a stream that travel best in one piece: writes of a multiple of it leave no small
  /// packet behind, which costs as much to send and to receive as a full one. 1: any.
  virtual std::size_t train_bytes(StreamId) const { return 1; }

  /// How many of the bytes written to a stream have certainly reached the peer's machine, where it
  /// will still read them if the stream breaks now.
  virtual std::size_t delivered(StreamId stream) = 0;

  /// The least time that bytes of a stream have taken to the peer and their acknowledgement back;
  /// zero: not known.
  virtual Duration round_trip(StreamId) const { return Duration::zero(); }

  /// Ends a stream. Bytes already taken are still delivered if the peer lives; what has come and is
  /// unread, or comes later, is thrown away, although it counts as delivered at the peer. Reading
  /// and writing fail afterwards (aborted). Idempotent.
  virtual void close(StreamId stream) = 0;

  /// The peer for people, as seen over one rail: "rank 3 (host b, 10.77.0.4:41234 over gw0)".
  virtual std::string describe(StreamId stream) const = 0;
};

/// A stream on which something became possible.
struct ReadyEvent {
  Rank peer = -1;
  bool readable = false;
  bool writable = false;
  int rail = 0;

  StreamId stream() const { return {peer, rail}; }
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
