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

/// A message is passed on in about this many segments, so that the next rank can begin soon, unless
/// they would be so small that each costs more than it saves.
inline constexpr int kSegmentsPerMessage = 16;
inline constexpr std::size_t kSmallestSegment = 16 * 1024;

/// Bytes of the segments of such a message, of which there are to be about `segments` (0:
/// kSegmentsPerMessage), at most `most`; a multiple of 64, unless `most` is less.
std::size_t segment_of(std::size_t message_bytes, std::size_t most, int segments = 0);

/// What an outbox may do, the same for all peers of an executor.
struct OutboxLimits {
  std::size_t segment_bytes = 128 * 1024;  ///< Most payload of one data frame; a multiple of 8.
  std::size_t eager_bytes = 16 * 1024;     ///< Larger messages wait until the peer has announced.
  std::size_t eager_budget = 256 * 1024;   ///< Eager bytes that a peer may not have asked for yet.
};

/// Everything that is to travel to one peer: control frames first, then data frames cut from the
/// messages that may go, the most urgent operation's first. Knows frames, not sockets.
///
/// With several streams (rails) to the peer, control frames and small messages take one rail, until
/// it fails; the segments of larger ones go to whichever takes them, so that each is as busy as it
/// can be, whatever its speed; but for the last ones, which a slow rail leaves to those that will
/// deliver them sooner. An announcement goes ahead of an operation's first data on every rail, so
/// that no order among them is needed. When a rail fails, the frames that the peer has not received
/// are retransmitted in their order over that one rail.
///
/// Announcements wait for company, because a system call costs more than a small message: they go
/// ahead of the next data, or when say_unsaid() is called.
class Outbox {
 public:
  /// Hears when a data frame has been handed over completely.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Bytes `begin` to `end` of message `op` are on their way.
    virtual void sent(Flight& flight, OpIndex op, std::size_t begin, std::size_t end) = 0;
  };

  Outbox(Rank peer, OutboxLimits limits, Transport& transport);

  /// Length and checksum of `header` are filled in.
  void queue_control(const FrameHeader& header, ConstBytes payload = {});
  /// The same on one rail in particular.
  void queue_control_on(int rail, const FrameHeader& header, ConstBytes payload = {});

  /// The peer is to hear that `flight` has been posted, before any data of it.
  void announce(Flight& flight, std::size_t side);
  /// Makes the announcements that wait part of what flush() writes.
  void say_unsaid();
  bool has_unsaid() const { return !unsaid_.empty(); }
  /// Bytes of small messages that the peer may send of operations whose announcement waits; once
  /// these and those of operations not posted use up its budget, it would wait for us to speak.
  std::size_t unsaid_bytes() const { return unsaid_bytes_; }
  std::size_t unsaid() const { return unsaid_.size(); }

  /// Message `op` of `flight` may have become able to go on, perhaps by what has `arrived`.
  /// Remembers it until all of it is sent.
  void queue_message(Flight& flight, OpIndex op, const Arrived& arrived);

  /// The peer has announced `key`: its eager bytes no longer count against the budget.
  void announced(OperationKey key);

  /// `flight` is over.
  void forget(const Flight& flight);

  /// Hands over to one rail what it can, up to about `budget` bytes. Returns true unless the rail
  /// may take more that is there. Errors: those of the transport.
  Result<bool> flush(int rail, Time now, std::size_t budget, Listener& listener);

  /// The rail can take more again.
  void writable(int rail) { sender(rail).writable(); }

  /// The rail has failed. Returns false if it was the last.
  bool stop(int rail);
  /// Writes a ping to a failed rail whose frames have been retransmitted, and no data.
  void probe(int rail, Time now);
  /// The probe has been delivered: the rail carries data again.
  void resume(int rail, Time now);
  /// The peer may not have received the announcement of `flight` on a rail that has failed since:
  /// repeats it ahead of the next data there.
  void announce_again(Flight& flight, int rail) const;
  bool is_live(int rail) const { return senders_[static_cast<std::size_t>(rail)].live(); }
  bool is_writing(int rail) const { return senders_[static_cast<std::size_t>(rail)].is_writing(); }
  std::size_t written(int rail) const { return senders_[static_cast<std::size_t>(rail)].written(); }
  int live_rails() const;
  int first_rail() const { return first_; }

  /// Sends what the peer has not got of a rail that has stopped again: all but the first `received`
  /// frames. Errors: corrupted, if the peer cannot have got so many; disconnected, if the memory of
  /// a lost frame has been overwritten since.
  Status send_again(int rail, std::uint64_t received);

  /// What has certainly reached the peer's machine need not be kept any longer.
  void confirm();
  bool undelivered(int rail) const {
    return senders_[static_cast<std::size_t>(rail)].undelivered();
  }
  std::size_t delivered(int rail) const {
    return senders_[static_cast<std::size_t>(rail)].delivered();
  }

  /// Forgets all messages; a frame that is half on its way keeps a copy of its rest, so that the
  /// stream stays readable for the control frames behind it. The lent memory is free afterwards.
  void drop_messages();

  /// Returns true if nothing is left to be written, or, with several rails, to be delivered on
  /// those that have not failed.
  bool is_done() const;

  std::size_t payload_bytes() const { return payload_bytes_; }
  std::size_t total_bytes() const { return total_bytes_; }

 private:
  /// A message of which not everything has been cut into frames.
  struct Message {
    Flight* flight = nullptr;
    OpIndex op = 0;
    std::size_t side = 0;
    std::size_t segment = 0;
    std::size_t framed = 0;
    SegmentSums sums = {};
  };

  struct Announcement {
    Flight* flight = nullptr;  ///< Null once it is over.
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
  std::vector<RailSender> senders_;  ///< By rail.
  int first_ = 0;                    ///< Carries control frames and small messages.
  std::size_t ahead_;                ///< Bytes cut into frames ahead of a stream's appetite.
  std::vector<Message> messages_;    ///< Most urgent first, then oldest first.
  std::vector<Announcement> unsaid_;
  std::size_t unsaid_bytes_ = 0;
  std::vector<EagerDebt> eager_debts_;
  std::size_t eager_debt_ = 0;
  std::size_t payload_bytes_ = 0;
  std::size_t total_bytes_ = 0;
};

}  // namespace gradwire
