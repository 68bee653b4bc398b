#include "gradwire/comm/rendezvous_store.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/comm/abort_message.h"
#include "gradwire/comm/rendezvous_server.h"
#include "gradwire/net/handshake.h"
#include "gradwire/net/system_failure.h"

namespace gradwire {
namespace {

/// The server answers at once; more means that its host or the link is in trouble.
constexpr Duration kPatience = std::chrono::seconds(10);

/// For one attempt to connect. Longer than a server allows strangers, as it may first have to get
/// through a queue of them.
constexpr Duration kAttempt = std::chrono::seconds(5);

/// A host that has lost its power or its network closes nothing; this long without a sign of life
/// ends a connection to it.
constexpr Duration kDeadAfter = std::chrono::seconds(5);

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

/// Whether rank 0 may merely not be there yet, or this process short of descriptors.
bool may_pass(const Error& error) {
  return error.kind == ErrorKind::disconnected || error.kind == ErrorKind::timeout ||
         error.kind == ErrorKind::system;
}

Result<RendezvousStore::Attempt> try_addresses(const std::vector<SocketAddress>& addresses,
                                               const RendezvousStore::Member& member,
                                               Deadline deadline) {
  const SharedSecret shared = {.secret = member.secret, .purpose = kStorePurpose};
  const Claims claims = {.from = member.rank, .to = 0, .world_size = member.world_size};
  Error last;
  for (const SocketAddress& address : addresses) {
    Result<Greeted> made = greet(address, shared, claims, deadline.or_after(kAttempt));
    if (made) return RendezvousStore::Attempt{std::move(*made), address};
    last = made.error();
    if (!may_pass(last)) break;
  }
  return tl::unexpected<Error>(std::move(last));
}

Result<RendezvousStore::Attempt> try_once(const RendezvousStore::Member& member,
                                          Deadline deadline) {
  const auto addresses = resolve(member.host, member.port);
  // A name may appear only when rank 0's host does, as it is in some clusters.
  if (!addresses) return failure(ErrorKind::timeout, addresses.error().message);
  return try_addresses(*addresses, member, deadline);
}

}  // namespace

struct RendezvousStore::Request {
  RequestKind kind = RequestKind::get;
  std::string_view key = {};
  std::string_view value = {};
  Duration wait = {};  ///< At the server.
};

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
    Status joined;
    if (attempt) {
      std::unique_ptr<RendezvousStore> store(new RendezvousStore(std::move(*attempt), member));
      joined = store->join();
      if (joined) return store;
      if (store->failed_) return tl::unexpected<Error>(*store->failed_);
    }
    const Error error = attempt ? joined.error() : attempt.error();
    if (!may_pass(error)) return tl::unexpected<Error>(error);
    // That our own deadline cut the last attempt short says nothing about rank 0.
    const bool cut_short = error.kind == ErrorKind::timeout && deadline.passed();
    if (!cut_short || last.message.empty()) last = error;
    if (deadline.passed() && last.kind == ErrorKind::system) return tl::unexpected<Error>(last);
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

RendezvousStore::RendezvousStore(Attempt attempt, Member member)
    : socket_(std::move(attempt.connection.socket)),
      server_(attempt.server),
      member_(std::move(member)),
      ours_(attempt.connection.key, StoreCodes::Speaker::client),
      theirs_(attempt.connection.key, StoreCodes::Speaker::server) {
  keep_alive(socket_, kDeadAfter);
}

Status RendezvousStore::join() {
  const std::string who = encode(Newcomer{.host = member_.own_host, .job_id = member_.job_id});
  const auto reply = ask({.kind = RequestKind::join, .value = who});
  if (!reply) return tl::unexpected<Error>(reply.error());
  if (reply->answer == StoreAnswer::ok) return {};
  return failure(ErrorKind::disconnected,
                 fmt::format("rank 0 still has the connection of another process that joined as "
                             "rank {}",
                             member_.rank));
}

Status RendezvousStore::set(const std::string& key, const std::string& value) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("a key of {} and a value of {} bytes: the rendezvous store takes "
                               "keys up to {} and values up to {}",
                               key.size(), value.size(), kMaxKeyBytes, kMaxValueBytes));
  }
  const auto reply = ask({.kind = RequestKind::set, .key = key, .value = value});
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
    auto reply = ask({.kind = RequestKind::get, .key = key, .wait = turn});
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
  const auto reply = ask({.kind = RequestKind::finish});
  if (!reply) return tl::unexpected<Error>(reply.error());
  return {};
}

Result<bool> RendezvousStore::seal() {
  const auto reply = ask({.kind = RequestKind::seal});
  if (!reply) return tl::unexpected<Error>(reply.error());
  return reply->answer == StoreAnswer::ok;
}

Status RendezvousStore::look() {
  const std::lock_guard lock(mutex_);
  if (failed_) return tl::unexpected<Error>(*failed_);
  if (!socket_.valid()) return lost("it broke before");
  if (!wait_for(socket_, POLLIN, Deadline::after(Duration::zero()))) return {};
  const auto reply = receive_reply(Deadline::after(kPatience));
  if (!reply) return tl::unexpected<Error>(reply.error());
  return lost("it answered what nobody had asked");
}

Error RendezvousStore::fail(const Error& error) {
  const auto bytes = encode_abort({error.kind, member_.rank, error.message});
  const std::string_view why(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // The answer is that the start has failed, and why.
  const auto reply = ask({.kind = RequestKind::fail, .value = why});
  // What all ranks see alike need not be said in another's words.
  if (failed_) return failed_->message.ends_with(error.message) ? error : *failed_;
  // That this rank lost another may well come from rank 0's end, which all notice.
  const bool follows = error.kind == ErrorKind::disconnected && !reply;
  return follows ? reply.error() : error;
}

/// The server hears of every end.
Status RendezvousStore::complete(Deadline deadline, const Standing& /*standing*/) {
  const auto reply = ask({.kind = RequestKind::complete, .wait = deadline.left()});
  if (!reply) return tl::unexpected<Error>(reply.error());
  if (reply->answer == StoreAnswer::ok) return {};
  return failure(ErrorKind::timeout, reply->value);
}

Result<RendezvousStore::Reply> RendezvousStore::ask(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (failed_) return tl::unexpected<Error>(*failed_);
  if (!socket_.valid()) return lost("it broke before");
  const Deadline deadline = Deadline::after(request.wait + kPatience);
  const auto wait_ms = static_cast<std::uint32_t>(milliseconds_of(request.wait));
  const Status sent =
      send_all(encode_request(request.kind, request.key, request.value, wait_ms, ours_), deadline);
  // It may have hung up after it had said why.
  Result<Reply> reply = receive_reply(deadline);
  if (!reply && !sent && !failed_) return tl::unexpected<Error>(sent.error());
  return reply;
}

Result<RendezvousStore::Reply> RendezvousStore::receive_reply(Deadline deadline) {
  const Result<std::string> head = receive_with_code(ResponseHeader::kSize, deadline);
  if (!head) return tl::unexpected<Error>(head.error());
  ResponseHeader header;
  if (!decode_response(*head, header)) return lost("what came is no response");
  Result<std::string> value = receive_with_code(header.value_size, deadline);
  if (!value) return tl::unexpected<Error>(value.error());
  if (header.answer != StoreAnswer::failed) return Reply{header.answer, std::move(*value)};
  const AbortMessage why = decode_abort(std::as_bytes(std::span(*value)), 0);
  failed_ = Error{why.kind, why.text};
  return tl::unexpected<Error>(*failed_);
}

Status RendezvousStore::send_all(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const Transfer sent = send_some(socket_, std::as_bytes(std::span(bytes)));
    if (sent.ended) return how_it_was_lost(words_of(sent.cause));
    bytes.remove_prefix(sent.bytes);
    if (sent.bytes == 0 && !wait_for(socket_, POLLOUT, deadline)) {
      return lost("it does not take requests");
    }
  }
  return {};
}

/// `size` bytes that the server has authenticated.
Result<std::string> RendezvousStore::receive_with_code(std::size_t size, Deadline deadline) {
  if (size == 0) return std::string();
  Result<std::string> bytes = receive(size + kCodeSize, deadline);
  if (!bytes || theirs_.check(*bytes)) return bytes;
  socket_.close();
  return failure(ErrorKind::corrupted,
                 fmt::format("what rank {} received from the rendezvous store of rank 0 at {} was "
                             "changed on the way (its code is wrong): look at the link between "
                             "these hosts",
                             member_.rank, server_.to_string()));
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

tl::unexpected<Error> RendezvousStore::how_it_was_lost(std::string_view how) const {
  return failure(
      ErrorKind::disconnected,
      fmt::format("lost the rendezvous store of rank 0 at {}: {}", server_.to_string(), how));
}

/// After any failure request and response no longer match: the connection is given up.
tl::unexpected<Error> RendezvousStore::lost(std::string_view how) {
  socket_.close();
  return how_it_was_lost(how);
}

}  // namespace gradwire
