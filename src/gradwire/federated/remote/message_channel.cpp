#include "gradwire/federated/remote/message_channel.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/base/check.h"

namespace gradwire::federated {
namespace {

/// Read at once, so that one connection does not delay others.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// Longer messages grow as they arrive.
constexpr std::uint64_t kMaxReserved = std::uint64_t{1} << 30;

}  // namespace

MessageChannel::MessageChannel(net::Socket socket, net::TlsStream::End end,
                               const net::SessionKey& key)
    : socket_(std::move(socket)), tls_(socket_.descriptor(), end, key) {}

short MessageChannel::wanted_events() const {
  if (!tls_.handshake_done()) return tls_.wanted_events();
  return outgoing_ ? POLLOUT : POLLIN;
}

Status MessageChannel::broken(const net::Transfer& transfer) const {
  if (tls_.openssl_error()) {
    return failure(ErrorKind::refused,
                   fmt::format("the connection cannot be encrypted: {}", *tls_.openssl_error()));
  }
  return failure(ErrorKind::disconnected,
                 transfer.cause == 0 ? "the other end has closed the connection"
                                     : "the connection broke: " + net::errno_text(transfer.cause));
}

Status MessageChannel::advance() {
  has_more_ = false;
  if (!tls_.handshake_done()) {
    const net::Transfer went = tls_.handshake();
    if (went.ended) return broken(went);
    if (!tls_.handshake_done()) return {};
  }
  GRADWIRE_RETURN_IF_ERROR(flush());
  return outgoing_ ? Status() : read();
}

void MessageChannel::send(Message message) {
  GRADWIRE_CHECK(!outgoing_);
  outgoing_ = std::move(message);
  written_ = 0;
}

Status MessageChannel::flush() {
  while (outgoing_) {
    const ConstBytes head = outgoing_->head, tail = outgoing_->tail.bytes();
    const std::size_t of_head = std::min(written_, head.size());
    const std::array<ConstBytes, 2> pieces{head.subspan(of_head), tail.subspan(written_ - of_head)};
    const net::Transfer went = tls_.write(pieces);
    written_ += went.bytes;
    sent_bytes_ += went.bytes;
    if (went.ended) return broken(went);
    if (written_ < head.size() + tail.size()) return {};
    outgoing_.reset();
  }
  return {};
}

Result<std::size_t> MessageChannel::read_into(Bytes bytes) {
  const std::array<Bytes, 1> pieces{bytes};
  const net::Transfer got = tls_.read(pieces);
  received_bytes_ += got.bytes;
  if (got.ended && got.bytes < bytes.size()) return tl::unexpected(broken(got).error());
  return got.bytes;
}

Status MessageChannel::read() {
  if (!header_) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto got,
                              read_into(Bytes(header_bytes_).subspan(header_received_)));
    header_received_ += got;
    if (header_received_ < header_bytes_.size()) return {};
    GRADWIRE_ASSIGN_OR_RETURN(header_, decode_header(header_bytes_));
  }
  if (!keeps_ || has_message()) return {};
  const auto piece =
      static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, header_->size - received_));
  const std::size_t at = *keeps_ ? static_cast<std::size_t>(received_) : 0;
  if (body_.size() < at + piece) body_.resize(at + piece);
  GRADWIRE_ASSIGN_OR_RETURN(const auto got, read_into(Bytes(body_).subspan(at, piece)));
  received_ += got;
  has_more_ = got == piece && received_ < header_->size;
  return {};
}

void MessageChannel::receive(bool keeps) {
  GRADWIRE_CHECK(is_deciding());
  keeps_ = keeps;
  if (keeps) body_.reserve(static_cast<std::size_t>(std::min(header_->size, kMaxReserved)));
  has_more_ = true;
}

Blob MessageChannel::take() {
  GRADWIRE_CHECK(has_message());
  std::vector<std::byte> body = std::exchange(body_, {});
  if (!*keeps_) body.clear();
  header_.reset();
  keeps_.reset();
  header_received_ = 0;
  received_ = 0;
  has_more_ = tls_.has_unread();
  return Blob::of(std::move(body));
}

}  // namespace gradwire::federated
