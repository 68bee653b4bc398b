#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "gradwire/comm/flight.h"
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
class Outbox {
 public:
  /// Hears when a data frame has been handed over completely.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// The first `bytes` bytes of message `op` are on their way.
    virtual void sent(Flight& flight, OpIndex op, std::size_t bytes) = 0;
  };

  Outbox(Rank peer, OutboxLimits limits) : peer_(peer), limits_(limits) {}

  void queue_control(FrameType type, OperationKey key, ConstBytes payload);

  /// Message `op` of `flight` may have become able to go on. Remembers it until all of it is sent.
  void queue_message(Flight& flight, OpIndex op);

  /// The peer has announced `key`: its eager bytes no longer count against the budget.
  void announced(OperationKey key);

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
    std::size_t framed = 0;
  };

  /// A frame that is to be written, or is half written.
  struct Frame {
    std::array<std::byte, kFrameHeaderBytes> header;
    ConstBytes payload;
    std::vector<std::byte> owned;  ///< Holds the payload where nothing else does.
    Flight* flight = nullptr;      ///< Null for control frames.
    OpIndex op = 0;
    std::size_t end = 0;  ///< How much of the message has gone once this has.

    std::size_t size() const { return header.size() + payload.size(); }
  };

  struct EagerDebt {
    OperationKey key;
    std::size_t bytes = 0;
  };

  bool commit_next();
  bool may_go(const Message& message) const;
  void commit(Message& message, std::size_t bytes);
  std::size_t gather(std::array<ConstBytes, 64>& pieces, std::size_t& count) const;
  void written(std::size_t bytes, Listener& listener);

  Rank peer_;
  OutboxLimits limits_;
  std::vector<Message> messages_;  ///< Most urgent first, then oldest first.
  std::deque<Frame> committed_;
  std::size_t front_written_ = 0;  ///< Bytes of committed_.front() already handed over.
  std::size_t committed_bytes_ = 0;
  std::vector<EagerDebt> eager_debts_;
  std::size_t eager_debt_ = 0;
  bool writable_ = true;
  std::size_t payload_bytes_ = 0;
  std::size_t total_bytes_ = 0;
};

}  // namespace gradwire
