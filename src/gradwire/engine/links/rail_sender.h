#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/engine/links/frame_queue.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

/// The outgoing side of one stream: the queue of frames to write and, if there are other streams
/// for failover, the written frames that are not acknowledged.
class RailSender {
 public:
  /// `keeps`: keep written frames until they are delivered, because there are other streams to the
  /// peer.
  RailSender(net::StreamId stream, const net::Transport& transport, bool keeps)
      : stream_(stream),
        checksums_(transport.needs_checksums(stream)),
        keeps_(keeps),
        gso_burst_(transport.gso_burst_bytes(stream)) {
    if (keeps) update_round_trip(transport);
  }

  /// Makes a frame, and sets the payload's length and checksum in the header. `lent`: the payload
  /// outlives the frame. `sum`: its checksum, if known.
  OutgoingFrame make(net::FrameHeader header, ConstBytes payload, bool lent,
                     std::optional<std::uint32_t> checksum = std::nullopt) const;
  bool has_checksums() const { return checksums_; }

  void push(OutgoingFrame frame) { queue_.push(std::move(frame)); }
  std::size_t queued_bytes() const { return queue_.unwritten(); }
  bool idle() const { return queue_.empty(); }

  /// Returns true if the rail carries data.
  bool live() const { return state_ == State::live; }
  /// Returns true if the rail carries data or a probe.
  bool is_writing() const { return state_ != State::stopped; }
  bool can_write() const { return is_writing() && writable_; }
  void writable() { writable_ = true; }
  /// The rail has failed: nothing more is written, or counted as delivered.
  void stop(net::Transport& transport);
  /// Starts writing frames again, numbered from 0. Called after take_unreceived().
  void probe(Time now);
  /// The probe has been delivered: the stream carries data again.
  void resume(Time now);
  /// Bytes of the stream that the transport has accepted.
  std::size_t written() const { return written_bytes_; }

  /// Writes once. Returns the number of accepted bytes; next_written() returns the completed
  /// frames. `more`: further frames will follow the queued ones, so an incomplete GSO burst at the
  /// end is kept for the next call.
  Result<std::size_t> write(net::Transport& transport, bool more);
  /// Returns the next completely written frame, or null. Valid until the next call.
  const OutgoingFrame* next_written();

  /// Releases acknowledged frames, and measures the rate of delivery.
  void measure(net::Transport& transport, Time now);

  /// Returns the estimated seconds until `bytes` more bytes are delivered, from the measured rate
  /// and round trip: (queued + bytes) / rate + round trip / 2, where `queued` is the bytes ahead of
  /// them minus the bandwidth-delay product. Empty if the rate is unknown.
  std::optional<double> seconds_until(std::size_t bytes) const;
  /// One-way latency in seconds; 0: unknown.
  double latency() const { return round_trip_ / 2; }

  /// Releases the frames that the other end has acknowledged.
  void confirm(net::Transport& transport);
  bool undelivered() const { return !kept_.empty() || !queue_.empty(); }
  std::size_t delivered() const { return delivered_; }

  /// Called when an operation has completed: copies the kept payloads in its memory.
  void keep_copies(const InFlightOperation& flight);

  /// Returns the frames of a stopped stream that its other end has not received, in order: all but
  /// the first `received`. Frames that were written have no flight, because their operation counts
  /// them as sent. Fails with corrupted if `received` is impossible, or with disconnected if a
  /// payload has been overwritten.
  Result<std::vector<OutgoingFrame>> take_unreceived(std::uint64_t received);

  /// Drops all data frames except a partly written one.
  void drop_messages();

 private:
  struct Kept {
    OutgoingFrame frame;
    std::size_t end = 0;  ///< Position of its end in the stream.
  };

  enum class State : std::uint8_t { live, stopped, probing };

  void update_round_trip(const net::Transport& transport);
  void forget_rate(Time now);

  net::StreamId stream_;
  bool checksums_;
  bool keeps_;
  std::size_t gso_burst_;  ///< Value of Transport::gso_burst_bytes().
  State state_ = State::live;
  bool writable_ = true;
  FrameQueue queue_;
  OutgoingFrame written_;      ///< Last result of next_written(), unless it is kept.
  std::size_t completed_ = 0;  ///< Position in the stream of the end of the last written frame.
  std::deque<Kept> kept_;
  std::uint64_t confirmed_ = 0;  ///< Number of frames before the first kept one.
  std::size_t delivered_ = 0;
  std::size_t written_bytes_ = 0;

  // Since the last update of the rate, while bytes were always in flight:
  Duration busy_{};
  std::size_t moved_ = 0;
  Time measured_at_{};
  std::size_t measured_delivered_ = 0;
  std::size_t measured_written_ = 0;
  double rate_ = 0;        ///< Bytes per second; 0: unknown.
  double round_trip_ = 0;  ///< Seconds; 0: unknown.
};

}  // namespace gradwire::engine
