#include "gradwire/bootstrap/handshake/handshake.h"

#include <algorithm>

#include <fmt/format.h>
#include <poll.h>

namespace gradwire::bootstrap {
namespace {

constexpr std::string_view kWrongSecret = "wrong secret: give every rank the same GRADWIRE_SECRET";

constexpr std::string_view kSameEncryption = "give every rank the same GRADWIRE_ENCRYPTION";

/// Quotes the first bytes of foreign data for a log line.
std::string quoted(ConstBytes bytes) {
  constexpr std::size_t kMaxQuoted = 24;
  std::string text = "\"";
  for (const std::byte byte : bytes.first(std::min(bytes.size(), kMaxQuoted))) {
    const auto code = static_cast<unsigned>(byte);
    const bool plain = code >= 0x20 && code < 0x7F && code != '"' && code != '\\';
    text += plain ? std::string(1, static_cast<char>(code)) : fmt::format("\\x{:02x}", code);
  }
  return text + (bytes.size() > kMaxQuoted ? "\"..." : "\"");
}

constexpr std::string_view encryption_words(bool encrypts) {
  return encrypts ? "encrypts its traffic" : "does not encrypt";
}

std::string version_words(std::uint32_t theirs) {
  return fmt::format(
      "speaks version {} of gradwire's protocol, this rank version {}: install the same "
      "version of gradwire on every host",
      theirs, kProtocolVersion);
}

}  // namespace

Handshake::Handshake(net::Socket socket, std::string other_end, SharedSecret shared)
    : socket_(std::move(socket)), other_end_(std::move(other_end)), shared_(std::move(shared)) {}

void Handshake::send(ConstBytes message) {
  outbox_.insert(outbox_.end(), message.begin(), message.end());
}

void Handshake::fail_after_sending(ErrorKind kind, std::string message) {
  pending_error_ = Error{kind, std::move(message)};
}

void Handshake::finish(const Transcript& transcript) {
  HandshakeMessage all = transcript.hello;
  all.insert(all.end(), transcript.answer.begin(), transcript.answer.end());
  session_key_ = net::derive_session_key(shared_.secret, all);
  finished_ = true;
}

short Handshake::wanted_events() const {
  return outbox_.empty() ? POLLIN : POLLOUT;
}

Status Handshake::advance() {
  for (;;) {
    GRADWIRE_RETURN_IF_ERROR(flush());
    if (!outbox_.empty() || finished_) return {};
    if (pending_error_) return tl::unexpected<Error>(*pending_error_);
    GRADWIRE_ASSIGN_OR_RETURN(const auto complete, receive());
    if (!complete) return {};
    ++messages_read_;
    const HandshakeMessage message = std::exchange(inbox_, {});
    GRADWIRE_RETURN_IF_ERROR(on_message(message));
  }
}

Status Handshake::flush() {
  while (!outbox_.empty()) {
    const net::Transfer sent = net::send_some(socket_, outbox_);
    if (sent.ended) {
      const char* what = connected_ ? "lost the connection to " : "cannot connect to ";
      return net::system_failure(what + other_end_, sent.cause, ErrorKind::disconnected);
    }
    if (sent.bytes == 0) return {};
    if (!connected_ && net::connected_to_itself(socket_)) {
      return failure(ErrorKind::disconnected, "no process listens at " + other_end_);
    }
    connected_ = true;
    outbox_.erase(outbox_.begin(), outbox_.begin() + static_cast<std::ptrdiff_t>(sent.bytes));
  }
  return {};
}

/// Returns true once a complete message is received. Never reads beyond it.
Result<bool> Handshake::receive() {
  while (inbox_.size() < expected_) {
    const std::size_t before = inbox_.size();
    inbox_.resize(expected_);
    const net::Transfer received = net::receive_some(socket_, Bytes(inbox_).subspan(before));
    inbox_.resize(before + received.bytes);
    if (received.cause != 0) {
      return net::system_failure("lost the connection to " + other_end_, received.cause,
                                 ErrorKind::disconnected);
    }
    if (received.ended) {
      return failure(ErrorKind::disconnected,
                     fmt::format("{} closed the connection during the handshake "
                                 "(after {} bytes of message {})",
                                 other_end_, before, messages_read_ + 1));
    }
    if (received.bytes == 0) return false;
    GRADWIRE_RETURN_IF_ERROR(check_magic());
  }
  return true;
}

/// Refuses a foreign protocol at the first wrong byte: the peer may never send a complete message.
Status Handshake::check_magic() const {
  if (messages_read_ > 0) return {};
  if (has_magic(inbox_)) return {};
  return failure(
      ErrorKind::corrupted,
      fmt::format("{} does not speak gradwire's protocol: it sent {}", other_end_, quoted(inbox_)));
}

ClientHandshake::ClientHandshake(net::Socket socket, std::string other_end, SharedSecret shared,
                                 Claims claims)
    : Handshake(std::move(socket), std::move(other_end), std::move(shared)),
      claims_(claims),
      transcript_({.hello = make_hello(claims, this->shared().purpose), .answer = {}}) {
  send(transcript_.hello);
  expect(kAnswerSize);
}

Status ClientHandshake::on_message(ConstBytes message) {
  return transcript_.answer.empty() ? on_answer(message) : on_verdict(message);
}

Status ClientHandshake::on_answer(ConstBytes answer) {
  if (version_in(answer) != kProtocolVersion) {
    return failure(ErrorKind::mismatch,
                   fmt::format("{} {}", other_end(), version_words(version_in(answer))));
  }
  transcript_.answer.assign(answer.begin(), answer.end());
  proof_ = client_proof(shared(), transcript_);
  send(proof_);
  expect(kVerdictSize);
  return {};
}

Status ClientHandshake::on_verdict(ConstBytes verdict) {
  if (!is_server_proof(verdict, shared(), transcript_, proof_)) {
    // Only the verdict on a wrong client proof carries no server proof.
    const bool refused = verdict_in(verdict) == Verdict::wrong_secret;
    return failure(ErrorKind::refused, refused
                                           ? fmt::format("{}: {}; or another job listens there: "
                                                         "use another --port",
                                                         other_end(), kWrongSecret)
                                           : fmt::format("{} has a {}", other_end(), kWrongSecret));
  }
  if (verdict_in(verdict) != Verdict::accepted) return on_refusal(verdict);
  finish(transcript_);
  return {};
}

/// Error for a client that the authenticated server has refused.
Status ClientHandshake::on_refusal(ConstBytes verdict) const {
  switch (verdict_in(verdict)) {
    case Verdict::duplicate:
      return failure(ErrorKind::invalid_argument,
                     fmt::format("another process has already joined as rank {}: give each "
                                 "process its own RANK (reported by {})",
                                 claims_.from, other_end()));
    case Verdict::other_world_size:
      return failure(ErrorKind::mismatch,
                     fmt::format("this process was started with a world size of {}, {} with {}",
                                 claims_.world_size, other_end(), world_size_in(verdict)));
    case Verdict::later:
      return failure(ErrorKind::disconnected,
                     fmt::format("{} still serves an earlier rendezvous", other_end()));
    case Verdict::other_encryption:
      return failure(ErrorKind::mismatch,
                     fmt::format("rank {} {}, {} the opposite: {}", claims_.from,
                                 encryption_words(claims_.encrypts), other_end(), kSameEncryption));
    case Verdict::accepted:
    case Verdict::wrong_secret:
    case Verdict::impossible:
      break;
  }
  return failure(ErrorKind::mismatch,
                 fmt::format("{} does not expect a connection from rank {} to rank {}", other_end(),
                             claims_.from, claims_.to));
}

Verdict check_rank(const Claims& claims, int world_size) {
  if (claims.world_size != world_size) return Verdict::other_world_size;
  const bool exists = claims.from >= 0 && claims.from < world_size;
  return exists ? Verdict::accepted : Verdict::impossible;
}

Credentials one_secret(SharedSecret shared) {
  return [shared = std::move(shared)](const Claims&) { return shared; };
}

ServerHandshake::ServerHandshake(net::Socket socket, std::string other_end, Credentials credentials,
                                 int world_size, Admit admit)
    : Handshake(std::move(socket), std::move(other_end), {}),
      credentials_(std::move(credentials)),
      world_size_(world_size),
      admit_(std::move(admit)) {
  expect(kHelloSize);
}

Status ServerHandshake::on_message(ConstBytes message) {
  return transcript_.hello.empty() ? on_hello(message) : on_proof(message);
}

Status ServerHandshake::on_hello(ConstBytes hello) {
  transcript_.hello.assign(hello.begin(), hello.end());
  transcript_.answer = make_answer();
  if (version_in(hello) != kProtocolVersion) return refuse_version();
  claims_ = claims_in(hello);
  if (auto shared = credentials_(claims_)) {
    is_known_ = true;
    set_shared(std::move(*shared));
  }
  send(transcript_.answer);
  expect(kProofSize);
  return {};
}

/// Tells the client this side's version, in the message size that older versions expect.
Status ServerHandshake::refuse_version() {
  transcript_.answer.resize(kOldAnswerSize);
  send(transcript_.answer);
  fail_after_sending(
      ErrorKind::mismatch,
      fmt::format("{} {}", other_end(), version_words(version_in(transcript_.hello))));
  return {};
}

Status ServerHandshake::on_proof(ConstBytes proof) {
  // Checks the proof of an unknown client too, so that the time of the answer says nothing.
  if (!is_client_proof(proof, shared(), transcript_) || !is_known_) {
    send(make_refusal());
    fail_after_sending(
        ErrorKind::refused,
        claims_.world_size == kNoWorld
            ? fmt::format("{} claims to be client {}, which has another secret or none",
                          other_end(), claims_.from)
            : fmt::format("{} has a {}", other_end(), kWrongSecret));
    return {};
  }
  const Verdict verdict = admit_(claims_);
  send(make_verdict(verdict, world_size_, shared(), transcript_, proof));
  conclude(verdict);
  return {};
}

void ServerHandshake::conclude(Verdict verdict) {
  switch (verdict) {
    case Verdict::accepted:
      finish(transcript_);
      break;
    case Verdict::duplicate:
      fail_after_sending(ErrorKind::invalid_argument,
                         fmt::format("{} claims to be rank {}, which has already joined",
                                     other_end(), claims_.from));
      break;
    case Verdict::later:
      fail_after_sending(ErrorKind::aborted, fmt::format("{} is early", other_end()));
      break;
    case Verdict::other_encryption:
      fail_after_sending(
          ErrorKind::mismatch,
          fmt::format("{}, rank {}, {}, and this rank the opposite: {}", other_end(), claims_.from,
                      encryption_words(claims_.encrypts), kSameEncryption));
      break;
    case Verdict::wrong_secret:
    case Verdict::other_world_size:
    case Verdict::impossible:
      fail_after_sending(
          ErrorKind::mismatch,
          fmt::format(
              "{} claims to be rank {} of {} and looks for rank {}; the world size here is {}",
              other_end(), claims_.from, claims_.world_size, claims_.to, world_size_));
      break;
  }
}

Result<AuthenticatedSocket> connect_and_authenticate(const net::HostNetwork& network,
                                                     const net::SocketAddress& to,
                                                     const SharedSecret& shared,
                                                     const Claims& claims, net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(auto socket, network.start_connect(to));
  ClientHandshake handshake(std::move(socket), to.to_string(), shared, claims);
  for (;;) {
    const bool ready = net::wait_for(handshake.socket(), handshake.wanted_events(), deadline);
    GRADWIRE_RETURN_IF_ERROR(handshake.advance());
    if (handshake.done())
      return AuthenticatedSocket{handshake.take_socket(), handshake.session_key()};
    if (!ready) {
      return failure(ErrorKind::timeout,
                     fmt::format("{} {}", to.to_string(),
                                 handshake.connected() ? "does not answer as gradwire does"
                                                       : "does not answer"));
    }
  }
}

Result<net::Socket> connect_authenticated(const net::HostNetwork& network,
                                          const net::SocketAddress& to, const SharedSecret& shared,
                                          const Claims& claims, net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(auto made,
                            connect_and_authenticate(network, to, shared, claims, deadline));
  return std::move(made.socket);
}

}  // namespace gradwire::bootstrap
