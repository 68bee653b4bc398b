#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/comm/flight.h"
#include "gradwire/comm/frame_queue.h"
#include "gradwire/net/frame.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// What an outbox may do, the same for all peers of an executor.
struct OutboxLimits {
  std::size_t segment_bytes = 128 * 1024;  ///< Most payload of one data frame; a multiple of 8.
  std::size_t eager_bytes = 16 * 1024;     ///< Larger messages wait until the peer has announced.
  std::size_t eager_budget = 256 * 1024;   ///< Eager bytes that a peer may not have asked for yet.
};

/// Everything that is to travel to one peer: control frames first, then data frames cut from the
/// messages that may go, the most urgent operation's first. Knows frames, not sockets.
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

  Outbox(Rank peer, OutboxLimits limits, const Transport& transport);

  void queue_control(FrameType type, OperationKey key, ConstBytes payload);

  /// The peer is to hear that `flight` has been posted, before any data of it.
  void announce(Flight& flight, std::size_t side);
  /// Makes the announcements that wait part of what flush() writes.
  void say_unsaid();
  bool has_unsaid() const { return !unsaid_.empty(); }
  /// Bytes of small messages that the peer may send of operations whose announcement waits; once
  /// these and those of operations not posted use up its budget, it would wait for us to speak.
  std::size_t unsaid_bytes() const { return unsaid_bytes_; }
  std::size_t unsaid() const { return unsaid_.size(); }

  /// Message `op` of `flight` may have become able to go on. Remembers it until all of it is sent.
  void queue_message(Flight& flight, OpIndex op);

  /// The peer has announced `key`: its eager bytes no longer count against the budget.
  void announced(OperationKey key);

  /// `flight` is over.
  void forget(const Flight& flight);

  /// Hands over what it can. Errors: those of the transport.
  Status flush(Transport& transport, Listener& listener);

  /// The transport can take more again.
  void writable() { writable_ = true; }

  /// Forgets all messages; a frame that is half on its way keeps a copy of its rest, so that the
  /// stream stays readable for the control frames behind it. The lent memory is free afterwards.
  void drop_messages();

  bool nothing_committed() const { return committed_.empty(); }

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

  bool commit_next();
  bool may_go(const Message& message) const;
  void commit(Message& message, std::size_t bytes);
  void commit_control(FrameType type, OperationKey key, ConstBytes payload);
  std::size_t segment_for(std::size_t message_bytes) const;
  std::uint32_t checksum(ConstBytes payload) const;
  void written(std::size_t bytes, Listener& listener);

  Rank peer_;
  OutboxLimits limits_;
  bool checksums_;
  std::vector<Message> messages_;  ///< Most urgent first, then oldest first.
  std::vector<Announcement> unsaid_;
  std::size_t unsaid_bytes_ = 0;
  FrameQueue committed_;
  std::vector<EagerDebt> eager_debts_;
  std::size_t eager_debt_ = 0;
  bool writable_ = true;
  std::size_t payload_bytes_ = 0;
  std::size_t total_bytes_ = 0;
};

}  // namespace gradwire
