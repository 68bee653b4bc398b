#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/engine/frame_queue.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// The outgoing side of one stream: the frames that are to be written to it, and, where another
/// stream could take over, those written that may not have reached the other end.
class RailSender {
 public:
  /// `keeps`: there are other streams to the peer.
  RailSender(StreamId stream, const Transport& transport, bool keeps)
      : stream_(stream),
        checksums_(transport.needs_checksums(stream)),
        keeps_(keeps),
        train_(transport.train_bytes(stream)) {
    if (keeps) learn_round_trip(transport);
  }

  /// Makes a frame of it, with the payload's length and checksum filled in. `lent`: the payload
  /// outlives the frame. `sum`: its checksum, if that is known.
  OutgoingFrame make(FrameHeader header, ConstBytes payload, bool lent,
                     std::optional<std::uint32_t> sum = std::nullopt) const;
  bool has_checksums() const { return checksums_; }

  void push(OutgoingFrame frame) { queue_.push(std::move(frame)); }
  std::size_t queued_bytes() const { return queue_.unwritten(); }
  bool idle() const { return queue_.empty(); }

  /// Carries data.
  bool live() const { return state_ == State::live; }
  /// Carries data, or a probe.
  bool is_writing() const { return state_ != State::stopped; }
  bool can_write() const { return is_writing() && writable_; }
  void writable() { writable_ = true; }
  /// The rail has failed: nothing more is written, and nothing more counts as delivered.
  void stop() { state_ = State::stopped; }
  /// Frames pushed from now on are written again, numbered from 0. After take_back().
  void probe(Time now);
  /// The probe has been delivered: the stream carries data again.
  void resume(Time now);
  /// Bytes of the stream that the transport has taken.
  std::size_t written() const { return written_bytes_; }

  /// Writes once. Returns how many bytes the stream took; those that are now complete come out of
  /// next_written(). `more`: there is something to push behind what is queued, so that what would
  /// leave in a packet of its own is kept for the next call.
  Result<std::size_t> write(Transport& transport, bool more);
  /// The next frame that has been written completely; null: none. Valid until the next call.
  const OutgoingFrame* next_written();

  /// Looks at how much has reached the other end: forgets that, and learns how fast it goes.
  void measure(Transport& transport, Time now);

  /// How many seconds from now `bytes` more would have been delivered, going by the rate and the
  /// round trip that were measured: bytes wait for those ahead of them that are not yet on their
  /// way, and travel for half a round trip. Nothing: not known yet.
  std::optional<double> seconds_until(std::size_t bytes) const;
  /// How many seconds a byte travels; 0: not known.
  double latency() const { return round_trip_ / 2; }

  /// Forgets what has reached the other end.
  void confirm(Transport& transport);
  bool undelivered() const { return !kept_.empty() || !queue_.empty(); }
  std::size_t delivered() const { return delivered_; }

  /// An operation is over: copies what is kept of its memory.
  void keep_copies(const Flight& flight);

  /// Of a stopped stream whose other end has got `received` frames: hands over the others, in
  /// order. Those that had been written are of no operation any more, which counts them as sent.
  /// Errors: corrupted, if that cannot be; disconnected, if what they carry has been overwritten.
  Result<std::vector<OutgoingFrame>> take_back(std::uint64_t received);

  /// Drops what carries messages, but for a frame that is half written.
  void drop_messages();

 private:
  struct Kept {
    OutgoingFrame frame;
    std::size_t end = 0;  ///< Bytes of the stream up to its end.
  };

  enum class State : std::uint8_t { live, stopped, probing };

  void learn_round_trip(const Transport& transport);
  void forget_rate(Time now);

  StreamId stream_;
  bool checksums_;
  bool keeps_;
  std::size_t train_;  ///< As Transport::train_bytes().
  State state_ = State::live;
  bool writable_ = true;
  FrameQueue queue_;
  OutgoingFrame written_;      ///< The last that next_written() returned, unless it is kept.
  std::size_t completed_ = 0;  ///< Bytes of the stream up to the end of the last written frame.
  std::deque<Kept> kept_;
  std::uint64_t confirmed_ = 0;  ///< Frames before the first that is kept.
  std::size_t delivered_ = 0;
  std::size_t written_bytes_ = 0;

  // Since the rate was last worked out, while there was always something under way:
  Duration busy_{};
  std::size_t moved_ = 0;
  Time measured_at_{};
  std::size_t measured_delivered_ = 0;
  std::size_t measured_written_ = 0;
  double rate_ = 0;        ///< Bytes a second; 0: not known.
  double round_trip_ = 0;  ///< Seconds; 0: not known.
};

}  // namespace gradwire
