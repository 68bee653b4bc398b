#include "gradwire/bootstrap/store/message_stream.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/check.h"

namespace gradwire::bootstrap {
namespace {

constexpr std::size_t kHead = 4;
constexpr std::size_t kCode = 16;

tl::unexpected<Error> lost(int cause) {
  return failure(ErrorKind::disconnected, cause == 0 ? std::string("the peer closed the connection")
                                                     : net::errno_text(cause));
}

}  // namespace

std::string MessageStream::code_of(End end, std::uint64_t number, std::string_view message) const {
  std::string said(1 + sizeof number, static_cast<char>(end));
  store_little_endian(bytes_of(said) + 1, number);
  said += message;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  const auto* made =
      HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
           reinterpret_cast<const unsigned char*>(said.data()), said.size(), digest.data(), &size);
  GRADWIRE_CHECK(made != nullptr && size >= kCode);
  return {reinterpret_cast<const char*>(digest.data()), kCode};
}

Status MessageStream::send(std::string_view message) {
  GRADWIRE_CHECK(message.size() <= max_message_bytes_);
  std::string head(kHead, '\0');
  store_little_endian(bytes_of(head), static_cast<std::uint32_t>(message.size()));
  outbox_.append(head).append(message).append(code_of(end_, sent_++, message));
  return flush();
}

Status MessageStream::flush() {
  std::size_t done = 0;
  while (done < outbox_.size()) {
    const net::Transfer sent =
        net::send_some(socket_, std::as_bytes(std::span(std::as_const(outbox_)).subspan(done)));
    if (sent.ended) return lost(sent.cause);
    if (sent.bytes == 0) break;
    done += sent.bytes;
  }
  outbox_.erase(0, done);
  return {};
}

/// Returns false until `size` bytes are received. Never reads beyond them.
Result<bool> MessageStream::fill(std::size_t size) {
  while (inbox_.size() < size) {
    const std::size_t before = inbox_.size();
    inbox_.resize(size);
    const net::Transfer received =
        net::receive_some(socket_, std::as_writable_bytes(std::span(inbox_)).subspan(before));
    inbox_.resize(before + received.bytes);
    if (received.ended) return lost(received.cause);
    if (received.bytes == 0) return false;
  }
  return true;
}

Result<bool> MessageStream::receive(std::string& message) {
  const Result<bool> head = fill(kHead);
  if (!head || !*head) return head;
  const std::size_t size = load_little_endian<std::uint32_t>(bytes_of(inbox_));
  if (size > max_message_bytes_) {
    return failure(ErrorKind::corrupted, fmt::format("it announced a message of {} bytes", size));
  }
  const Result<bool> whole = fill(kHead + size + kCode);
  if (!whole || !*whole) return whole;
  message = inbox_.substr(kHead, size);
  const std::string theirs = inbox_.substr(kHead + size);
  inbox_.clear();
  const End other = end_ == End::client ? End::server : End::client;
  const std::string ours = code_of(other, received_++, message);
  if (CRYPTO_memcmp(ours.data(), theirs.data(), kCode) == 0) return true;
  return failure(ErrorKind::corrupted,
                 "a message was corrupted in transit (wrong authentication code): check the link "
                 "between these hosts");
}

bool MessageStream::discard() {
  std::array<std::byte, 4096> bytes;
  for (;;) {
    const net::Transfer received = net::receive_some(socket_, bytes);
    if (received.ended) return false;
    if (received.bytes == 0) return true;
  }
}

}  // namespace gradwire::bootstrap
