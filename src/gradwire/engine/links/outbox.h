#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gradwire/engine/links/frame_queue.h"
#include "gradwire/engine/links/rail_sender.h"
#include "gradwire/engine/links/segment_checksums.h"
#include "gradwire/engine/operations/in_flight_operation.h"
#include "gradwire/net/frame.h"
#include "gradwire/net/transport.h"
#include "gradwire/schedule/cost/segments.h"

namespace gradwire::engine {

/// Limits of an outbox, the same for all peers of an executor.
struct OutboxLimits {
  std::size_t segment_bytes =
      schedule::kMaxSegmentBytes;         ///< Maximum payload of a data frame; a multiple of 8.
  std::size_t eager_bytes = 16 * 1024;    ///< Larger messages wait for the peer's announcement.
  std::size_t eager_credit = 256 * 1024;  ///< Bytes sent ahead of the peer's announcements.
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
/// written ahead of the next data, or when flush_announcements() is called.
class Outbox {
 public:
  /// Notified when a data frame has been written completely to the transport.
  class Observer {
   public:
    virtual ~Observer() = default;
    /// Bytes `begin` to `end` of message `op` have been written.
    virtual void sent(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin,
                      std::size_t end) = 0;
  };

  Outbox(Rank peer, OutboxLimits limits, net::Transport& transport);

  /// Queues a control frame on the first live rail. Sets length and checksum of `header`.
  void queue_control(const net::FrameHeader& header, ConstBytes payload = {});
  /// Same as queue_control(), on one rail.
  void queue_control_on(int rail, const net::FrameHeader& header, ConstBytes payload = {});

  /// Adds the announcement that `flight` has been posted. It is written before any of its data.
  void announce(InFlightOperation& flight, std::size_t exchange);
  /// Queues the pending announcements for flush().
  void flush_announcements();
  bool has_pending_announcements() const { return !pending_announcements_.empty(); }
  /// Message bytes that the peer may send for operations with a pending announcement. They use the
  /// peer's eager credit, together with those of operations that are not posted here.
  std::size_t unannounced_bytes() const { return unannounced_bytes_; }
  std::size_t pending_announcements() const { return pending_announcements_.size(); }

  /// Called when more bytes of message `op` of `flight` may be sent; `payload`: the received bytes
  /// that enabled this, if any. Keeps the message until all of it is sent.
  void queue_message(InFlightOperation& flight, schedule::OpIndex op,
                     const VerifiedPayload& payload);

  /// The peer has announced `key`: its eager bytes are returned to the credit.
  void announced(OperationKey key);

  /// `flight` has completed: drops references to it and copies its undelivered payloads.
  void forget(const InFlightOperation& flight);

  /// Measures how fast each rail delivers. Called before the rails are flushed, not between them:
  /// rails that decided by different measurements could each leave a segment to another one.
  void measure(Time now);

  /// Writes to one rail until it is full or nothing is left, up to about `budget` bytes. Returns
  /// false if the budget ended the call and more can be written. Bytes that one rail takes can make
  /// another one better for the rest, so the caller flushes all rails until none takes more. Fails
  /// with the transport's errors.
  Result<bool> flush(int rail, std::size_t budget, Observer& observer);

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
  void reannounce(InFlightOperation& flight, int rail) const;
  bool is_writing(int rail) const { return senders_[static_cast<std::size_t>(rail)].is_writing(); }
  std::size_t written(int rail) const { return senders_[static_cast<std::size_t>(rail)].written(); }
  int live_rails() const;
  int first_rail() const { return first_; }

  /// Retransmits the frames of a stopped rail that the peer has not received: all but the first
  /// `received`. Fails with corrupted if that number is impossible, or with disconnected if the
  /// memory of a lost frame has been overwritten.
  Status resend(int rail, std::uint64_t received);

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
    InFlightOperation* flight = nullptr;
    schedule::OpIndex op = 0;
    std::size_t exchange = 0;
    std::size_t segment = 0;
    std::size_t framed = 0;
    SegmentChecksums checksums = {};
  };

  struct Announcement {
    InFlightOperation* flight = nullptr;  ///< Null once it has completed.
    std::size_t exchange = 0;
    OperationKey key;
    std::array<std::byte, kFingerprintBytes> fingerprint;
  };

  struct OutstandingEager {
    OperationKey key;
    std::size_t bytes = 0;
  };

  RailSender& sender(int rail) { return senders_[static_cast<std::size_t>(rail)]; }
  void update_checksums(Message& message, const VerifiedPayload& payload) const;
  bool commit_next(int rail);
  bool is_striped(const Message& message) const;
  bool delivers_in_time(int rail, std::size_t bytes) const;
  bool may_send(const Message& message, int rail) const;
  void commit(Message& message, std::size_t bytes, int rail);
  void announce_on_rail(int rail, InFlightOperation& flight, std::size_t exchange);

  Rank peer_;
  OutboxLimits limits_;
  net::Transport& transport_;
  std::vector<RailSender> senders_;  ///< Per rail.
  int first_ = 0;                    ///< Rail of control frames and small messages.
  std::size_t max_queued_;           ///< Maximum bytes in frames queued ahead of a stream.
  std::vector<Message> messages_;    ///< By descending priority, then oldest first.
  std::vector<Announcement> pending_announcements_;
  std::size_t unannounced_bytes_ = 0;
  std::vector<OutstandingEager> outstanding_;
  std::size_t outstanding_eager_bytes_ = 0;
  std::size_t payload_bytes_ = 0;
  std::size_t total_bytes_ = 0;
};

}  // namespace gradwire::engine
