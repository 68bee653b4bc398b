#include "gradwire/net/handshake.h"

#include <algorithm>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <poll.h>

#include "gradwire/base/check.h"
#include "gradwire/net/system_failure.h"

namespace gradwire {
namespace {

constexpr std::string_view kMagic = "GRADWIRE";
constexpr std::size_t kNonceSize = 32;
constexpr std::size_t kProofSize = 32;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kServiceAt = 24;
constexpr std::size_t kHelloNonceAt = 32;
static_assert(kHelloSize == kHelloNonceAt + kNonceSize);
constexpr std::size_t kAnswerNonceAt = 16;
constexpr std::size_t kAnswerHeadSize = kAnswerNonceAt + kNonceSize;
constexpr std::size_t kAnswerSize = kAnswerHeadSize + kProofSize;
constexpr std::size_t kVerdictSize = 8;

constexpr std::string_view kWrongSecret = "wrong secret: give every rank the same GRADWIRE_SECRET";

using Proof = std::array<std::byte, kProofSize>;
using Message = std::vector<std::byte>;

void put(std::byte* at, std::int32_t value) {
  store_little_endian(at, static_cast<std::uint32_t>(value));
}

std::int32_t get_signed(const std::byte* at) {
  return static_cast<std::int32_t>(load_little_endian<std::uint32_t>(at));
}

std::uint32_t version_in(ConstBytes message) {
  return load_little_endian<std::uint32_t>(message.data() + kVersionAt);
}

void put_magic_and_version(Message& message) {
  std::memcpy(message.data(), kMagic.data(), kMagic.size());
  store_little_endian(message.data() + kVersionAt, kProtocolVersion);
}

void put_nonce(std::byte* at) {
  // Without randomness there is no handshake that could be trusted.
  GRADWIRE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(at), kNonceSize) == 1);
}

Message make_hello(const Claims& claims, std::string_view purpose) {
  Message hello(kHelloSize);
  put_magic_and_version(hello);
  put(hello.data() + 12, claims.from);
  put(hello.data() + 16, claims.to);
  put(hello.data() + 20, claims.world_size);
  store_little_endian(hello.data() + kServiceAt, service_number(purpose));
  put(hello.data() + 28, claims.rail);
  put_nonce(hello.data() + kHelloNonceAt);
  return hello;
}

Claims claims_in(ConstBytes hello) {
  return {.from = get_signed(hello.data() + 12),
          .to = get_signed(hello.data() + 16),
          .world_size = get_signed(hello.data() + 20),
          .rail = get_signed(hello.data() + 28)};
}

Message make_answer_head() {
  Message head(kAnswerHeadSize);
  put_magic_and_version(head);
  put_nonce(head.data() + kAnswerNonceAt);
  return head;
}

/// Every part that varies in size is preceded by its size, so that no two inputs run together.
void append_sized(Message& message, std::string_view text) {
  Message size(8);
  store_little_endian(size.data(), static_cast<std::uint64_t>(text.size()));
  message.insert(message.end(), size.begin(), size.end());
  const auto bytes = std::as_bytes(std::span(text));
  message.insert(message.end(), bytes.begin(), bytes.end());
}

Proof prove(std::string_view role, const SharedSecret& shared, ConstBytes hello, ConstBytes head) {
  Message input;
  append_sized(input, role);
  append_sized(input, shared.purpose);
  input.insert(input.end(), hello.begin(), hello.end());
  input.insert(input.end(), head.begin(), head.end());
  Proof proof;
  unsigned int size = 0;
  const auto* made =
      HMAC(EVP_sha256(), shared.secret.data(), static_cast<int>(shared.secret.size()),
           reinterpret_cast<const unsigned char*>(input.data()), input.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &size);
  GRADWIRE_CHECK(made != nullptr && size == kProofSize);
  return proof;
}

Proof server_proof(const SharedSecret& shared, ConstBytes hello, ConstBytes head) {
  return prove("server", shared, hello, head);
}

Proof client_proof(const SharedSecret& shared, ConstBytes hello, ConstBytes head) {
  return prove("client", shared, hello, head);
}

/// In a time that does not tell where they differ.
bool equal(const Proof& ours, ConstBytes theirs) {
  return theirs.size() == ours.size() &&
         CRYPTO_memcmp(ours.data(), theirs.data(), ours.size()) == 0;
}

/// The first bytes of something that is not ours, fit for a log line.
std::string quoted(ConstBytes bytes) {
  constexpr std::size_t kMost = 24;
  std::string text = "\"";
  for (const std::byte byte : bytes.first(std::min(bytes.size(), kMost))) {
    const auto code = static_cast<unsigned>(byte);
    const bool plain = code >= 0x20 && code < 0x7F && code != '"' && code != '\\';
    text += plain ? std::string(1, static_cast<char>(code)) : fmt::format("\\x{:02x}", code);
  }
  return text + (bytes.size() > kMost ? "\"..." : "\"");
}

std::string version_words(std::uint32_t theirs) {
  return fmt::format(
      "speaks version {} of gradwire's protocol, this side version {}: install the same "
      "gradwire on every host",
      theirs, kProtocolVersion);
}

}  // namespace

std::uint32_t service_number(std::string_view purpose) {
  std::uint32_t hash = 0x811C9DC5u;
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

std::optional<Destination> destination_of(ConstBytes hello) {
  const bool ours = hello.size() >= kHelloSize &&
                    std::memcmp(hello.data(), kMagic.data(), kMagic.size()) == 0 &&
                    version_in(hello) == kProtocolVersion;
  if (!ours) return std::nullopt;
  return Destination{.service = load_little_endian<std::uint32_t>(hello.data() + kServiceAt),
                     .rank = claims_in(hello).to};
}

Handshake::Handshake(Socket socket, std::string other_end, SharedSecret shared)
    : socket_(std::move(socket)), other_end_(std::move(other_end)), shared_(std::move(shared)) {}

void Handshake::send(ConstBytes message) {
  outbox_.insert(outbox_.end(), message.begin(), message.end());
}

void Handshake::fail_after_sending(ErrorKind kind, std::string message) {
  failing_ = Error{kind, std::move(message)};
}

short Handshake::wanted_events() const {
  return outbox_.empty() ? POLLIN : POLLOUT;
}

Status Handshake::advance() {
  for (;;) {
    if (Status sent = flush(); !sent) return sent;
    if (!outbox_.empty() || finished_) return {};
    if (failing_) return tl::unexpected<Error>(*failing_);
    const Result<bool> complete = receive();
    if (!complete) return tl::unexpected<Error>(complete.error());
    if (!*complete) return {};
    ++messages_read_;
    const Message message = std::exchange(inbox_, {});
    if (Status understood = on_message(message); !understood) return understood;
  }
}

Status Handshake::flush() {
  while (!outbox_.empty()) {
    const Transfer sent = send_some(socket_, outbox_);
    if (sent.ended) {
      const char* what = connected_ ? "lost the connection to " : "cannot connect to ";
      return system_failure(what + other_end_, sent.cause, ErrorKind::disconnected);
    }
    if (sent.bytes == 0) return {};
    if (!connected_ && connected_to_itself(socket_)) {
      return failure(ErrorKind::disconnected, "nobody listens at " + other_end_);
    }
    connected_ = true;
    outbox_.erase(outbox_.begin(), outbox_.begin() + static_cast<std::ptrdiff_t>(sent.bytes));
  }
  return {};
}

/// True once a whole message is there. Never takes more than that from the stream.
Result<bool> Handshake::receive() {
  while (inbox_.size() < expected_) {
    const std::size_t before = inbox_.size();
    inbox_.resize(expected_);
    const Transfer received = receive_some(socket_, Bytes(inbox_).subspan(before));
    inbox_.resize(before + received.bytes);
    if (received.cause != 0) {
      return system_failure("lost the connection to " + other_end_, received.cause,
                            ErrorKind::disconnected);
    }
    if (received.ended) {
      return failure(ErrorKind::disconnected,
                     fmt::format("{} closed the connection before it had proved who it is "
                                 "({} bytes of message {} had come)",
                                 other_end_, before, messages_read_ + 1));
    }
    if (received.bytes == 0) return false;
    if (Status ours = check_magic(); !ours) return tl::unexpected<Error>(ours.error());
  }
  return true;
}

/// Refuses what is not gradwire at its first wrong byte: it may never send a whole message.
Status Handshake::check_magic() const {
  if (messages_read_ > 0) return {};
  const std::size_t count = std::min(inbox_.size(), kMagic.size());
  if (std::memcmp(inbox_.data(), kMagic.data(), count) == 0) return {};
  return failure(
      ErrorKind::corrupted,
      fmt::format("{} does not speak gradwire's protocol: it sent {}", other_end_, quoted(inbox_)));
}

ClientHandshake::ClientHandshake(Socket socket, std::string other_end, SharedSecret shared,
                                 Claims claims)
    : Handshake(std::move(socket), std::move(other_end), std::move(shared)),
      claims_(claims),
      hello_(make_hello(claims, this->shared().purpose)) {
  send(hello_);
  expect(kAnswerSize);
}

Status ClientHandshake::on_message(ConstBytes message) {
  return proved_ ? on_verdict(message) : on_answer(message);
}

Status ClientHandshake::on_answer(ConstBytes answer) {
  if (version_in(answer) != kProtocolVersion) {
    return failure(ErrorKind::mismatch,
                   fmt::format("{} {}", other_end(), version_words(version_in(answer))));
  }
  const ConstBytes head = answer.first(kAnswerHeadSize);
  proved_ = true;
  if (!equal(server_proof(shared(), hello_, head), answer.subspan(kAnswerHeadSize))) {
    // Not our proof: whoever does not know the secret shall learn nothing that depends on it.
    send(Proof{});
    fail_after_sending(ErrorKind::refused, fmt::format("{} has a {}", other_end(), kWrongSecret));
    return {};
  }
  send(client_proof(shared(), hello_, head));
  expect(kVerdictSize);
  return {};
}

Status ClientHandshake::on_verdict(ConstBytes verdict) {
  switch (static_cast<Verdict>(load_little_endian<std::uint32_t>(verdict.data()))) {
    case Verdict::accepted:
      finish();
      return {};
    case Verdict::wrong_secret:
      return failure(ErrorKind::refused, fmt::format("{}: {}", other_end(), kWrongSecret));
    case Verdict::duplicate:
      return failure(ErrorKind::invalid_argument,
                     fmt::format("another process has already joined as rank {}: give each "
                                 "process its own RANK (said by {})",
                                 claims_.from, other_end()));
    case Verdict::other_world_size:
      return failure(ErrorKind::mismatch,
                     fmt::format("this process was started with a world size of {}, {} with {}",
                                 claims_.world_size, other_end(), get_signed(verdict.data() + 4)));
    case Verdict::later:
      return failure(ErrorKind::disconnected,
                     fmt::format("{} still serves an earlier rendezvous", other_end()));
    case Verdict::impossible:
      break;
  }
  return failure(ErrorKind::mismatch,
                 fmt::format("{} does not expect a connection from rank {} to rank {}", other_end(),
                             claims_.from, claims_.to));
}

ServerHandshake::ServerHandshake(Socket socket, std::string other_end, SharedSecret shared,
                                 int world_size, Admit admit)
    : Handshake(std::move(socket), std::move(other_end), std::move(shared)),
      world_size_(world_size),
      admit_(std::move(admit)) {
  expect(kHelloSize);
}

Status ServerHandshake::on_message(ConstBytes message) {
  return hello_.empty() ? on_hello(message) : on_proof(message);
}

Status ServerHandshake::on_hello(ConstBytes hello) {
  hello_.assign(hello.begin(), hello.end());
  answer_head_ = make_answer_head();
  send(answer_head_);
  send(server_proof(shared(), hello_, answer_head_));
  if (version_in(hello) != kProtocolVersion) {
    // The answer went out all the same: it tells the client our version.
    fail_after_sending(ErrorKind::mismatch,
                       fmt::format("{} {}", other_end(), version_words(version_in(hello))));
  }
  expect(kProofSize);
  return {};
}

Verdict ServerHandshake::judge(ConstBytes proof) const {
  if (!equal(client_proof(shared(), hello_, answer_head_), proof)) return Verdict::wrong_secret;
  const Claims claims = claims_in(hello_);
  if (claims.world_size != world_size_) return Verdict::other_world_size;
  if (claims.from < 0 || claims.from >= world_size_) return Verdict::impossible;
  return admit_(claims);
}

Status ServerHandshake::on_proof(ConstBytes proof) {
  const Verdict verdict = judge(proof);
  claims_ = claims_in(hello_);
  std::array<std::byte, kVerdictSize> message;
  store_little_endian(message.data(), static_cast<std::uint32_t>(verdict));
  put(message.data() + 4, world_size_);
  send(message);
  switch (verdict) {
    case Verdict::accepted:
      finish();
      break;
    case Verdict::wrong_secret:
      fail_after_sending(ErrorKind::refused, fmt::format("{} has a {}", other_end(), kWrongSecret));
      break;
    case Verdict::duplicate:
      fail_after_sending(ErrorKind::invalid_argument,
                         fmt::format("{} says it is rank {}, which has already joined", other_end(),
                                     claims_.from));
      break;
    case Verdict::later:
      fail_after_sending(ErrorKind::aborted, fmt::format("{} is early", other_end()));
      break;
    case Verdict::other_world_size:
    case Verdict::impossible:
      fail_after_sending(
          ErrorKind::mismatch,
          fmt::format("{} says it is rank {} of {} and looks for rank {}; this is a world of {}",
                      other_end(), claims_.from, claims_.world_size, claims_.to, world_size_));
      break;
  }
  return {};
}

Result<Socket> connect_and_greet(const SocketAddress& to, const SharedSecret& shared,
                                 const Claims& claims, Deadline deadline) {
  Result<Socket> socket = start_connect(to);
  if (!socket) return socket;
  ClientHandshake handshake(std::move(*socket), to.to_string(), shared, claims);
  for (;;) {
    const bool ready = wait_for(handshake.socket(), handshake.wanted_events(), deadline);
    if (Status moved = handshake.advance(); !moved) return tl::unexpected<Error>(moved.error());
    if (handshake.done()) return handshake.take_socket();
    if (!ready) {
      return failure(ErrorKind::timeout,
                     fmt::format("{} {}", to.to_string(),
                                 handshake.connected() ? "does not answer as gradwire does"
                                                       : "does not answer"));
    }
  }
}

}  // namespace gradwire
