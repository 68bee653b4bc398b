#include "gradwire/bootstrap/rendezvous_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/bootstrap/handshake.h"
#include "gradwire/bootstrap/rendezvous_server.h"
#include "gradwire/net/abort_message.h"

namespace gradwire::bootstrap {
namespace {

/// A host that has lost power or its network closes no connection; keep-alive ends a connection
/// after this time without a response.
constexpr Duration kDeadAfter = std::chrono::seconds(5);

/// Maximum time that one request waits at the server before other requests of this client get their
/// turn.
constexpr Duration kTurn = std::chrono::seconds(1);

RankZero rank_zero(const RendezvousStore::Member& member) {
  return {.host = member.host,
          .port = member.port,
          .shared = {.secret = member.secret, .purpose = kStorePurpose},
          .claims = {.from = member.rank, .to = 0, .world_size = member.world_size}};
}

}  // namespace

struct RendezvousStore::Request {
  RequestKind kind = RequestKind::get;
  std::string_view key = {};
  std::string_view value = {};
  Duration wait = {};  ///< Maximum wait at the server.
};

struct RendezvousStore::Reply {
  StoreAnswer answer;
  std::string value;
};

Result<std::unique_ptr<RendezvousStore>> RendezvousStore::connect(const net::HostNetwork& network,
                                                                  const Member& member,
                                                                  net::Deadline deadline) {
  const RankZero to = rank_zero(member);
  Attempts attempts(network, to, deadline);
  Error last;
  for (;;) {
    Result<RankZeroConnection> attempt = connect_once(network, to, deadline);
    Status joined;
    if (attempt) {
      std::unique_ptr<RendezvousStore> store(
          new RendezvousStore(network.clock(), std::move(*attempt), member));
      joined = store->join();
      if (joined) return store;
      if (store->failed_) return tl::unexpected<Error>(*store->failed_);
    }
    const Error error = attempt ? joined.error() : attempt.error();
    GRADWIRE_RETURN_IF_ERROR(attempts.after(error));
    // If this client's deadline cut the last attempt short, its error says nothing about rank 0.
    const bool cut_short = error.kind == ErrorKind::timeout && deadline.passed();
    if (!cut_short || last.message.empty()) last = error;
    if (deadline.passed() && last.kind == ErrorKind::system) return tl::unexpected<Error>(last);
    if (deadline.passed()) {
      return failure(ErrorKind::timeout,
                     fmt::format("rank 0 has not joined at {}:{} within {:.3g} s ({}); is it "
                                 "started, and can this host reach that address?",
                                 member.host, member.port, attempts.seconds(), last.message));
    }
  }
}

RendezvousStore::RendezvousStore(const Clock& clock, RankZeroConnection connected, Member member)
    : clock_(clock),
      socket_(std::move(connected.connection.socket)),
      server_(connected.server),
      member_(std::move(member)),
      ours_(connected.connection.key, StoreCodes::Speaker::client),
      theirs_(connected.connection.key, StoreCodes::Speaker::server) {
  net::keep_alive(socket_, kDeadAfter);
}

std::string ended_key(Rank rank) {
  return fmt::format("ended/{}", rank);
}

Status RendezvousStore::join() {
  const std::string who = encode(Newcomer{.host = member_.own_host, .job_id = member_.job_id});
  GRADWIRE_ASSIGN_OR_RETURN(const auto reply, ask({.kind = RequestKind::join, .value = who}));
  if (reply.answer == StoreAnswer::ok) return {};
  return failure(ErrorKind::disconnected,
                 fmt::format("rank 0 still has a connection to another process that joined as "
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
  GRADWIRE_ASSIGN_OR_RETURN(const auto reply,
                            ask({.kind = RequestKind::set, .key = key, .value = value}));
  if (reply.answer == StoreAnswer::ok) return {};
  return failure(ErrorKind::invalid_argument,
                 fmt::format("the rendezvous store at {} is full ({} MiB)", server_.to_string(),
                             kMaxStoreBytes >> 20));
}

Result<std::string> RendezvousStore::get(const std::string& key, Duration timeout) {
  if (key.size() > kMaxKeyBytes) return failure(ErrorKind::invalid_argument, "the key is too long");
  const net::Deadline deadline = net::Deadline::after(clock_, timeout);
  for (;;) {
    const Duration turn = std::min(deadline.left(), kTurn);
    GRADWIRE_ASSIGN_OR_RETURN(auto reply,
                              ask({.kind = RequestKind::get, .key = key, .wait = turn}));
    if (reply.answer == StoreAnswer::ok) return std::move(reply.value);
    if (deadline.passed()) {
      return failure(
          ErrorKind::timeout,
          fmt::format("no rank has set \"{}\" in the rendezvous store at {} within {} ms", key,
                      server_.to_string(), net::milliseconds_of(timeout)));
    }
  }
}

Status RendezvousStore::finish() {
  GRADWIRE_RETURN_IF_ERROR(ask({.kind = RequestKind::finish}));
  return {};
}

Result<bool> RendezvousStore::seal() {
  GRADWIRE_ASSIGN_OR_RETURN(const auto reply, ask({.kind = RequestKind::seal}));
  return reply.answer == StoreAnswer::ok;
}

Status RendezvousStore::check() {
  const std::lock_guard lock(mutex_);
  if (failed_) return tl::unexpected<Error>(*failed_);
  if (!socket_.valid()) return lost("the connection broke earlier");
  if (!net::wait_for(socket_, POLLIN, net::Deadline::after(clock_, Duration::zero()))) return {};
  GRADWIRE_RETURN_IF_ERROR(receive_reply(net::Deadline::after(clock_, kRankZeroPatience)));
  return lost("it sent an unexpected response");
}

Error RendezvousStore::fail(const Error& error) {
  const auto bytes = net::encode_abort({error.kind, member_.rank, error.message});
  const std::string_view why(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // The response is the failure of the start and its reason.
  const auto reply = ask({.kind = RequestKind::fail, .value = why});
  // If all ranks report the same error, this rank's own wording is used.
  if (failed_) return failed_->message.ends_with(error.message) ? error : *failed_;
  // Losing another rank may be a consequence of rank 0's end, which all ranks notice.
  const bool follows = error.kind == ErrorKind::disconnected && !reply;
  return follows ? reply.error() : error;
}

/// The server notices when a rank exits, so `check_connections` is not needed.
Status RendezvousStore::complete(net::Deadline deadline,
                                 const ConnectionCheck& /*check_connections*/) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto reply,
                            ask({.kind = RequestKind::complete, .wait = deadline.left()}));
  if (reply.answer == StoreAnswer::ok) return {};
  // Or the others would take the end of this rank for the reason.
  return tl::unexpected<Error>(fail({ErrorKind::timeout, reply.value}));
}

Result<RendezvousStore::Reply> RendezvousStore::ask(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (failed_) return tl::unexpected<Error>(*failed_);
  if (!socket_.valid()) return lost("the connection broke earlier");
  const net::Deadline deadline = net::Deadline::after(clock_, request.wait + kRankZeroPatience);
  const auto wait_ms = static_cast<std::uint32_t>(net::milliseconds_of(request.wait));
  const Status sent =
      send_all(encode_request(request.kind, request.key, request.value, wait_ms, ours_), deadline);
  // The server may have closed the connection after sending the reason.
  Result<Reply> reply = receive_reply(deadline);
  if (!reply && !sent && !failed_) return tl::unexpected<Error>(sent.error());
  return reply;
}

Result<RendezvousStore::Reply> RendezvousStore::receive_reply(net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto head, receive_with_code(ResponseHeader::kSize, deadline));
  ResponseHeader header;
  if (!decode_response(head, header)) return lost("it sent a malformed response");
  GRADWIRE_ASSIGN_OR_RETURN(auto value, receive_with_code(header.value_size, deadline));
  if (header.answer != StoreAnswer::failed) return Reply{header.answer, std::move(value)};
  const net::AbortMessage why = net::decode_abort(std::as_bytes(std::span(value)), 0);
  failed_ = Error{why.kind, why.text};
  return tl::unexpected<Error>(*failed_);
}

Status RendezvousStore::send_all(std::string_view bytes, net::Deadline deadline) {
  while (!bytes.empty()) {
    const net::Transfer sent = net::send_some(socket_, std::as_bytes(std::span(bytes)));
    if (sent.ended) return lost_error(net::errno_text(sent.cause));
    bytes.remove_prefix(sent.bytes);
    if (sent.bytes == 0 && !net::wait_for(socket_, POLLOUT, deadline)) {
      return lost("it does not accept data");
    }
  }
  return {};
}

/// Receives `size` bytes authenticated by the server.
Result<std::string> RendezvousStore::receive_with_code(std::size_t size, net::Deadline deadline) {
  if (size == 0) return std::string();
  Result<std::string> bytes = receive(size + kCodeSize, deadline);
  if (!bytes || theirs_.check(*bytes)) return bytes;
  socket_.close();
  return failure(
      ErrorKind::corrupted,
      fmt::format("data that rank {} received from the rendezvous store of rank 0 at {} was "
                  "corrupted in transit (wrong authentication code): check the link between "
                  "these hosts",
                  member_.rank, server_.to_string()));
}

Result<std::string> RendezvousStore::receive(std::size_t size, net::Deadline deadline) {
  std::string bytes(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    const net::Transfer received =
        net::receive_some(socket_, std::as_writable_bytes(std::span(bytes)).subspan(got));
    if (received.ended) {
      return lost(received.cause == 0 ? "rank 0 has exited" : net::errno_text(received.cause));
    }
    got += received.bytes;
    if (received.bytes == 0 && !net::wait_for(socket_, POLLIN, deadline)) {
      return lost("it does not respond");
    }
  }
  return bytes;
}

tl::unexpected<Error> RendezvousStore::lost_error(std::string_view how) const {
  return failure(
      ErrorKind::disconnected,
      fmt::format("lost the rendezvous store of rank 0 at {}: {}", server_.to_string(), how));
}

/// After a failure, requests and responses no longer match, so the connection is closed.
tl::unexpected<Error> RendezvousStore::lost(std::string_view how) {
  socket_.close();
  return lost_error(how);
}

}  // namespace gradwire::bootstrap
