#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gradwire/engine/flight.h"
#include "gradwire/engine/frame_queue.h"
#include "gradwire/engine/rail_sender.h"
#include "gradwire/engine/segment_sums.h"
#include "gradwire/net/frame.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// A forwarded message is split into about this many segments, so that the next rank can start
/// early (cut-through). Segments below kSmallestSegment would cost more than they save.
inline constexpr int kSegmentsPerMessage = 16;
inline constexpr std::size_t kSmallestSegment = 16 * 1024;

/// Returns the segment size in bytes that splits a message into about `segments` segments (0:
/// kSegmentsPerMessage). At most `most`; a multiple of 64, unless `most` is less.
std::size_t segment_of(std::size_t message_bytes, std::size_t most, int segments = 0);

/// Limits of an outbox, the same for all peers of an executor.
struct OutboxLimits {
  std::size_t segment_bytes = 128 * 1024;  ///< Maximum payload of a data frame; a multiple of 8.
  std::size_t eager_bytes = 16 * 1024;     ///< Larger messages wait for the peer's announcement.
  std::size_t eager_budget =
      256 * 1024;  ///< Eager credit: bytes sent before the peer's announcement.
};

/// Outgoing frames to one peer: control frames first, then data frames of the messages that may be
/// sent, in order of the operations' priority. Handles frames, not sockets.
///
/// With several streams (rails) to the peer, control frames and small messages use one rail, until
/// it fails. Segments of larger messages go to any rail that accepts bytes, so that all rails are
/// fully used, whatever their speed. A slow rail leaves the last segments to rails that will
/// deliver them sooner. On every rail the announcement precedes an operation's first data, so no
/// order among rails is needed. When a rail fails, the frames that the peer has not received are
/// retransmitted in order over the rail of the control frames.
///
/// Announcements are piggybacked, because a system call costs more than a small message: they are
/// written ahead of the next data, or when say_unsaid() is called.
class Outbox {
 public:
  /// Notified when a data frame has been written completely to the transport.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Bytes `begin` to `end` of message `op` have been written.
    virtual void sent(Flight& flight, OpIndex op, std::size_t begin, std::size_t end) = 0;
  };

  Outbox(Rank peer, OutboxLimits limits, Transport& transport);

  /// Queues a control frame on the first live rail. Sets length and checksum of `header`.
  void queue_control(const FrameHeader& header, ConstBytes payload = {});
  /// Same as queue_control(), on one rail.
  void queue_control_on(int rail, const FrameHeader& header, ConstBytes payload = {});

  /// Adds the announcement that `flight` has been posted. It is written before any of its data.
  void announce(Flight& flight, std::size_t side);
  /// Queues the pending announcements for flush().
  void say_unsaid();
  bool has_unsaid() const { return !unsaid_.empty(); }
  /// Message bytes that the peer may send for operations with a pending announcement. They use the
  /// peer's eager credit, together with those of operations that are not posted here.
  std::size_t unsaid_bytes() const { return unsaid_bytes_; }
  std::size_t unsaid() const { return unsaid_.size(); }

  /// Called when more bytes of message `op` of `flight` may be sent; `arrived`: the received bytes
  /// that enabled this, if any. Keeps the message until all of it is sent.
  void queue_message(Flight& flight, OpIndex op, const Arrived& arrived);

  /// The peer has announced `key`: its eager bytes are returned to the credit.
  void announced(OperationKey key);

  /// `flight` has completed: drops references to it and copies its undelivered payloads.
  void forget(const Flight& flight);

  /// Measures how fast each rail delivers. Called before the rails are flushed, not between them:
  /// rails that decided by different measurements could each leave a segment to another one.
  void measure(Time now);

  /// Writes to one rail until it is full or nothing is left, up to about `budget` bytes. Returns
  /// false if the budget ended the call and more can be written. Bytes that one rail takes can make
  /// another one better for the rest, so the caller flushes all rails until none takes more. Fails
  /// with the transport's errors.
  Result<bool> flush(int rail, std::size_t budget, Listener& listener);

  /// The rail accepts bytes again.
  void writable(int rail) { sender(rail).writable(); }

  /// Stops writing to a failed rail. Returns false if it was the last live one.
  bool stop(int rail);
  /// Writes a ping, but no data, to a failed rail whose frames have been retransmitted.
  void probe(int rail, Time now);
  /// The probe has been delivered: the rail carries data again.
  void resume(int rail, Time now);
  /// Repeats the announcement of `flight` ahead of its next data on a rail that failed and
  /// recovered: the peer may not have received it there.
  void announce_again(Flight& flight, int rail) const;
  bool is_writing(int rail) const { return senders_[static_cast<std::size_t>(rail)].is_writing(); }
  std::size_t written(int rail) const { return senders_[static_cast<std::size_t>(rail)].written(); }
  int live_rails() const;
  int first_rail() const { return first_; }

  /// Retransmits the frames of a stopped rail that the peer has not received: all but the first
  /// `received`. Fails with corrupted if that number is impossible, or with disconnected if the
  /// memory of a lost frame has been overwritten.
  Status send_again(int rail, std::uint64_t received);

  /// Releases the kept frames that the peer's host has acknowledged.
  void confirm();
  bool undelivered(int rail) const {
    return senders_[static_cast<std::size_t>(rail)].undelivered();
  }
  std::size_t delivered(int rail) const {
    return senders_[static_cast<std::size_t>(rail)].delivered();
  }

  /// Drops all messages. A partly written frame keeps a copy of its remaining bytes, so that the
  /// stream stays valid for the control frames behind it. Lent memory is not used afterwards.
  void drop_messages();

  /// Returns true if all queued frames are written; with several rails, if they are delivered on
  /// the rails that have not failed.
  bool is_done() const;

  std::size_t payload_bytes() const { return payload_bytes_; }
  std::size_t total_bytes() const { return total_bytes_; }

 private:
  /// A message with bytes that are not yet in frames.
  struct Message {
    Flight* flight = nullptr;
    OpIndex op = 0;
    std::size_t side = 0;
    std::size_t segment = 0;
    std::size_t framed = 0;
    SegmentSums sums = {};
  };

  struct Announcement {
    Flight* flight = nullptr;  ///< Null once it has completed.
    std::size_t side = 0;
    OperationKey key;
    std::array<std::byte, kFingerprintBytes> fingerprint;
  };

  struct EagerDebt {
    OperationKey key;
    std::size_t bytes = 0;
  };

  RailSender& sender(int rail) { return senders_[static_cast<std::size_t>(rail)]; }
  void sum_up(Message& message, const Arrived& arrived) const;
  bool commit_next(int rail);
  bool is_striped(const Message& message) const;
  bool is_worth_it(int rail, std::size_t bytes) const;
  bool may_go(const Message& message, int rail) const;
  void commit(Message& message, std::size_t bytes, int rail);
  void tell_over(int rail, Flight& flight, std::size_t side);

  Rank peer_;
  OutboxLimits limits_;
  Transport& transport_;
  std::vector<RailSender> senders_;  ///< Per rail.
  int first_ = 0;                    ///< Rail of control frames and small messages.
  std::size_t ahead_;                ///< Maximum bytes in frames queued ahead of a stream.
  std::vector<Message> messages_;    ///< By descending priority, then oldest first.
  std::vector<Announcement> unsaid_;
  std::size_t unsaid_bytes_ = 0;
  std::vector<EagerDebt> eager_debts_;
  std::size_t eager_debt_ = 0;
  std::size_t payload_bytes_ = 0;
  std::size_t total_bytes_ = 0;
};

}  // namespace gradwire
