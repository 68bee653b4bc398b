#include "gradwire/comm/rendezvous_store.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/comm/rendezvous_server.h"
#include "gradwire/comm/store_protocol.h"
#include "gradwire/net/handshake.h"
#include "gradwire/net/system_failure.h"

namespace gradwire {
namespace {

/// The server answers at once; more means that its host or the link is in trouble.
constexpr Duration kPatience = std::chrono::seconds(10);

/// For one attempt to connect. Longer than a server allows strangers, as it may first have to get
/// through a queue of them.
constexpr Duration kAttempt = std::chrono::seconds(5);

/// How long one request waits at the server before others of this client get their turn.
constexpr Duration kTurn = std::chrono::seconds(1);

/// Pauses between attempts to connect, growing: there is no event for "rank 0 has started".
class Backoff {
 public:
  void pause(Deadline deadline) {
    ::poll(nullptr, 0, milliseconds_of(std::min(pause_, deadline.left())));
    pause_ = std::min<Duration>(pause_ * 2, std::chrono::milliseconds(200));
  }

 private:
  Duration pause_ = std::chrono::milliseconds(5);
};

struct Attempt {
  Socket socket;
  SocketAddress server;
};

/// Whether rank 0 may merely not be there yet.
bool may_pass(const Error& error) {
  return error.kind == ErrorKind::disconnected || error.kind == ErrorKind::timeout;
}

Result<Attempt> try_addresses(const std::vector<SocketAddress>& addresses,
                              const RendezvousStore::Member& member, Deadline deadline) {
  const SharedSecret shared = {.secret = member.secret, .purpose = kStorePurpose};
  const Claims claims = {.from = member.rank, .to = 0, .world_size = member.world_size};
  Error last;
  for (const SocketAddress& address : addresses) {
    Result<Socket> socket = connect_and_greet(address, shared, claims, deadline.or_after(kAttempt));
    if (socket) return Attempt{std::move(*socket), address};
    last = socket.error();
    if (!may_pass(last)) break;
  }
  return tl::unexpected<Error>(std::move(last));
}

Result<Attempt> try_once(const RendezvousStore::Member& member, Deadline deadline) {
  const auto addresses = resolve(member.host, member.port);
  // A name may appear only when rank 0's host does, as it is in some clusters.
  if (!addresses) return failure(ErrorKind::timeout, addresses.error().message);
  return try_addresses(*addresses, member, deadline);
}

}  // namespace

struct RendezvousStore::Reply {
  StoreAnswer answer;
  std::string value;
};

Result<std::unique_ptr<RendezvousStore>> RendezvousStore::connect(const Member& member,
                                                                  Deadline deadline) {
  const Time start = SteadyClock().now();
  Backoff backoff;
  Error last;
  for (;;) {
    Result<Attempt> attempt = try_once(member, deadline);
    if (attempt) {
      return std::unique_ptr<RendezvousStore>(
          new RendezvousStore(std::move(attempt->socket), attempt->server));
    }
    if (!may_pass(attempt.error())) return tl::unexpected<Error>(attempt.error());
    // That our own deadline cut the last attempt short says nothing about rank 0.
    const bool cut_short = attempt.error().kind == ErrorKind::timeout && deadline.passed();
    if (!cut_short || last.message.empty()) last = attempt.error();
    if (deadline.passed()) {
      const auto waited = std::chrono::duration<double>(deadline.at() - start).count();
      return failure(ErrorKind::timeout,
                     fmt::format("rank 0 has not joined at {}:{} within {:.3g} s ({}); is it "
                                 "started, and can this host reach that address?",
                                 member.host, member.port, waited, last.message));
    }
    backoff.pause(deadline);
  }
}

RendezvousStore::RendezvousStore(Socket socket, SocketAddress server)
    : socket_(std::move(socket)), server_(server) {}

Status RendezvousStore::set(const std::string& key, const std::string& value) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("a key of {} and a value of {} bytes: the rendezvous store takes "
                               "keys up to {} and values up to {}",
                               key.size(), value.size(), kMaxKeyBytes, kMaxValueBytes));
  }
  const auto reply = ask(encode_request(RequestKind::set, key, value, 0), Duration::zero());
  if (!reply) return tl::unexpected<Error>(reply.error());
  if (reply->answer == StoreAnswer::ok) return {};
  return failure(ErrorKind::invalid_argument,
                 fmt::format("the rendezvous store at {} is full ({} MiB)", server_.to_string(),
                             kMaxStoreBytes >> 20));
}

Result<std::string> RendezvousStore::get(const std::string& key, Duration timeout) {
  if (key.size() > kMaxKeyBytes) return failure(ErrorKind::invalid_argument, "the key is too long");
  const Deadline deadline = Deadline::after(timeout);
  for (;;) {
    const Duration turn = std::min(deadline.left(), kTurn);
    const auto wait_ms = static_cast<std::uint32_t>(milliseconds_of(turn));
    auto reply = ask(encode_request(RequestKind::get, key, {}, wait_ms), turn);
    if (!reply) return tl::unexpected<Error>(reply.error());
    if (reply->answer == StoreAnswer::ok) return std::move(reply->value);
    if (deadline.passed()) {
      return failure(ErrorKind::timeout,
                     fmt::format("nobody has set \"{}\" in the rendezvous store at {} within {} ms",
                                 key, server_.to_string(), milliseconds_of(timeout)));
    }
  }
}

Status RendezvousStore::finish() {
  const auto reply = ask(encode_request(RequestKind::finish, {}, {}, 0), Duration::zero());
  if (!reply) return tl::unexpected<Error>(reply.error());
  return {};
}

Result<RendezvousStore::Reply> RendezvousStore::ask(const std::string& request, Duration wait) {
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) return lost("it broke before");
  const Deadline deadline = Deadline::after(wait + kPatience);
  if (Status sent = send_all(request, deadline); !sent) return tl::unexpected<Error>(sent.error());
  const Result<std::string> head = receive(ResponseHeader::kSize, deadline);
  if (!head) return tl::unexpected<Error>(head.error());
  ResponseHeader header;
  if (!decode_response(*head, header)) return lost("what came is no response");
  Result<std::string> value = receive(header.value_size, deadline);
  if (!value) return tl::unexpected<Error>(value.error());
  return Reply{header.answer, std::move(*value)};
}

Status RendezvousStore::send_all(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const Transfer sent = send_some(socket_, std::as_bytes(std::span(bytes)));
    if (sent.ended) return lost(words_of(sent.cause));
    bytes.remove_prefix(sent.bytes);
    if (sent.bytes == 0 && !wait_for(socket_, POLLOUT, deadline)) {
      return lost("it does not take requests");
    }
  }
  return {};
}

Result<std::string> RendezvousStore::receive(std::size_t size, Deadline deadline) {
  std::string bytes(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    const Transfer received =
        receive_some(socket_, std::as_writable_bytes(std::span(bytes)).subspan(got));
    if (received.ended) {
      return lost(received.cause == 0 ? "rank 0 has ended" : words_of(received.cause));
    }
    got += received.bytes;
    if (received.bytes == 0 && !wait_for(socket_, POLLIN, deadline)) {
      return lost("it does not answer");
    }
  }
  return bytes;
}

/// After any failure request and response no longer match: the connection is given up.
tl::unexpected<Error> RendezvousStore::lost(std::string_view how) {
  socket_.close();
  return failure(
      ErrorKind::disconnected,
      fmt::format("lost the rendezvous store of rank 0 at {}: {}", server_.to_string(), how));
}

}  // namespace gradwire
