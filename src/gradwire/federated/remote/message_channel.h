#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/federated/remote/messages.h"
#include "gradwire/net/socket.h"
#include "gradwire/net/tls_stream.h"

namespace gradwire::federated {

/// Messages over one encrypted connection, one in each direction at a time, without waiting. The
/// owner sees a message's header before memory is taken for the rest. Not thread-safe.
class MessageChannel {
 public:
  MessageChannel(net::Socket socket, net::TlsStream::End end, const net::SessionKey& key);

  const net::Socket& socket() const { return socket_; }
  /// The poll(2) events for which advance() waits.
  short wanted_events() const;
  /// Sends and receives what can be moved now, of a long message a part. Fails with disconnected,
  /// refused (another key), mismatch or corrupted; the channel is of no use then.
  Status advance();
  /// Returns true if advance() may go on without an event.
  bool has_more() const { return has_more_; }

  void send(Message message);
  bool has_sent() const { return !outgoing_; }
  /// Returns true between messages.
  bool is_idle() const { return !outgoing_ && header_received_ == 0; }

  /// The header of the message that arrives; nullopt until it is whole.
  const std::optional<MessageHeader>& header() const { return header_; }
  /// Called once for each header: the rest is kept, or dropped as it arrives.
  void receive(bool keeps);
  bool is_deciding() const { return header_ && !keeps_; }
  bool has_message() const { return header_ && keeps_ && received_ == header_->size; }
  /// The rest of the message, which is done with; empty if it was dropped.
  Blob take();

  /// Bytes of messages in each direction.
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  std::uint64_t received_bytes() const { return received_bytes_; }

 private:
  Status flush();
  Status read();
  Result<std::size_t> read_into(Bytes bytes);
  Status broken(const net::Transfer& transfer) const;

  net::Socket socket_;
  net::TlsStream tls_;
  std::optional<Message> outgoing_;
  std::size_t written_ = 0;  ///< Bytes of outgoing_.
  std::array<std::byte, MessageHeader::kBytes> header_bytes_ = {};
  std::size_t header_received_ = 0;
  std::optional<MessageHeader> header_;
  std::optional<bool> keeps_;
  std::vector<std::byte> body_;
  std::uint64_t received_ = 0;  ///< Bytes of the body.
  std::uint64_t sent_bytes_ = 0, received_bytes_ = 0;
  bool has_more_ = false;
};

}  // namespace gradwire::federated
