#include "gradwire/engine/executor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/engine/failure_text.h"
#include "gradwire/engine/links/receive_demand.h"
#include "gradwire/net/abort_message.h"
#include "gradwire/net/frame.h"

namespace gradwire::engine {
namespace {

/// Every kReadAllEvery-th call of read_awaited() reads from all peers with missing messages, not
/// only from the senders of the next ones.
constexpr std::uint64_t kReadAllEvery = 8;

const ExecutorOptions& checked(const ExecutorOptions& options) {
  GRADWIRE_CHECK(options.limits.segment_bytes % 8 == 0 && options.limits.segment_bytes > 0);
  GRADWIRE_CHECK(options.limits.segment_bytes <= net::kMaxDataPayload);
  GRADWIRE_CHECK(options.receive_buffer_bytes > 0);
  return options;
}

}  // namespace

Executor::Executor(Rank rank, int ranks, const ExecutorOptions& options, net::Transport& transport,
                   Time now)
    : rank_(rank),
      options_(checked(options)),
      state_{.now = now},
      links_(rank, ranks,
             {.limits = options.limits,
              .receive_buffer_bytes = options.receive_buffer_bytes,
              .dead_peer_timeout = options.dead_peer_timeout,
              .on_warning = options.on_warning},
             state_, transport, *this),
      operations_(rank, ranks, {.limits = options.limits, .domain = options.domain}, state_, links_,
                  *this) {}

Executor::~Executor() = default;

void Executor::post(OperationRequest request, Time now) {
  state_.now = now;
  operations_.post(std::move(request));
  links_.flush();
}

void Executor::post(std::vector<OperationRequest> requests, Time now) {
  state_.now = now;
  for (OperationRequest& request : requests) operations_.post(std::move(request));
  links_.flush();
}

void Executor::on_readable(net::StreamId stream, Time now) {
  state_.now = now;
  links_.read(stream);
  links_.settle();
  links_.flush();
}

void Executor::on_writable(net::StreamId stream, Time now) {
  state_.now = now;
  links_.writable(stream);
  links_.flush();
}

bool Executor::read_awaited(Time now) {
  state_.now = now;
  const std::size_t bytes = links_.read(operations_.awaited(++reads_ % kReadAllEvery == 0));
  links_.settle();
  links_.flush();
  return bytes > 0;
}

void Executor::prepare_to_sleep() {
  expect_bytes(links_.peers(), operations_.in_flight(), links_.transport());
}

void Executor::on_timer(Time now) {
  state_.now = now;
  links_.resume_deferred();
  operations_.on_timer(now);
  links_.check(now);
  links_.settle();
  links_.flush();
}

Time Executor::next_timer() const {
  return std::min(links_.next_timer(), operations_.next_timer());
}

Executor::Traffic Executor::traffic() const {
  Traffic traffic;
  for (const auto& peer : links_.peers()) {
    if (!peer) continue;
    traffic.payload_bytes += peer->outbox.payload_bytes();
    traffic.total_bytes += peer->outbox.total_bytes();
  }
  return traffic;
}

Result<PayloadSink> Executor::begin_frame(Rail& rail, const net::FrameHeader& header) {
  rail.early = false;
  if (header.type != net::FrameType::data) return PayloadSink{.to = rail.control.data()};
  return operations_.begin_data(rail, header);
}

Status Executor::complete_frame(Rail& rail, const net::FrameHeader& header) {
  if (rail.failed && rail.drained) rail.peer_probed = true;
  switch (header.type) {
    case net::FrameType::data:
      operations_.complete_data(rail, header);
      break;
    case net::FrameType::announce:
      return operations_.on_announcement(rail, header);
    case net::FrameType::abort:
      on_abort(rail, header);
      break;
    case net::FrameType::goodbye:
      on_goodbye(rail, header);
      break;
    case net::FrameType::ping:
      on_ping(rail, header);
      break;
    case net::FrameType::rail_notice:
      return links_.on_notice(rail, header);
  }
  return {};
}

void Executor::sent(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin,
                    std::size_t end) {
  operations_.advance(flight, op, begin, end);
}

void Executor::on_abort(Rail& rail, const net::FrameHeader& header) {
  const Rank from = rail.stream.peer;
  const net::AbortMessage message =
      net::decode_abort(ConstBytes(rail.control).first(header.length), from);
  const bool first_hand = message.origin == from;  // A forwarded one names it already.
  const std::string text = first_hand ? reported_by(message.origin, message.text) : message.text;
  fail({.error = {message.kind, text}, .peer = from, .origin = message.origin});
}

void Executor::on_ping(Rail& rail, const net::FrameHeader& header) {
  if (header.message == 0 || rail.failed || state_.error) return;
  links_.peer(rail.stream.peer)
      .outbox.queue_control_on(rail.stream.rail, {.type = net::FrameType::ping});
  links_.mark_dirty(rail.stream.peer);
}

/// Each rail has its own goodbye: frames on one rail may arrive after the goodbye of another.
void Executor::on_goodbye(Rail& rail, const net::FrameHeader& header) {
  Peer& from = links_.peer(rail.stream.peer);
  const auto* text = reinterpret_cast<const char*>(rail.control.data());
  if (header.length > 0) from.failure.assign(text, header.length);
  if (header.message < from.rails.size()) from.rails[header.message]->goodbye = true;
  const bool all = std::ranges::all_of(from.rails, [](const auto& r) { return r->goodbye; });
  if (!all || from.departed) return;
  from.departed = true;
  links_.count_gone(from);
  operations_.check_departed();
}

void Executor::on_peer_lost(Rank rank, const Error& error) {
  fail({.error = {error.kind, disconnect_text(error.message, operations_.first_needing(rank))},
        .peer = rank,
        .cause = rank});
}

void Executor::abort(Error error) {
  if (!state_.error && options_.on_failure) options_.on_failure(rank_, error.message);
  fail_all(error, rank_);
  links_.flush();
}

void Executor::abort_with(Rank peer, const Error& error) {
  GRADWIRE_CHECK(options_.domain == FailureDomain::pair);
  fail({.error = error, .peer = peer});
  links_.flush();
}

void Executor::fail(const Failure& failure) {
  const Rank origin = failure.origin < 0 ? rank_ : failure.origin;
  if (options_.domain == FailureDomain::pair && failure.peer >= 0) {
    return fail_with(links_.peer(failure.peer), failure.error, origin);
  }
  const bool first_hand = failure.cause >= 0 && !state_.error;
  if (first_hand && options_.on_failure) options_.on_failure(failure.cause, failure.error.message);
  fail_all(failure.error, origin);
}

/// The first error fails all operations. Lent memory is not accessed afterwards.
void Executor::fail_all(const Error& error, Rank origin) {
  if (state_.error) return;
  state_.error = error;
  const std::vector<std::byte> message = net::encode_abort({error.kind, origin, error.message});
  for (const auto& peer : links_.peers()) {
    if (!peer) continue;
    Links::abandon_messages(*peer);
    links_.send_abort(*peer, message);
  }
  operations_.fail_all(error);
}

/// The first error with a peer fails the operations with it.
void Executor::fail_with(Peer& peer, const Error& error, Rank origin) {
  if (peer.error || state_.error) return;
  peer.error = error;
  links_.count_gone(peer);
  if (options_.on_warning) {
    options_.on_warning(error.message + "; operations with other ranks go on");
  }
  Links::abandon_messages(peer);
  links_.send_abort(peer, net::encode_abort({error.kind, origin, error.message}));
  operations_.fail_with(peer.rank, error);
}

void Executor::send_goodbye(const Error& why, const std::string& failure) {
  if (!failure.empty() && !state_.error && options_.on_failure) options_.on_failure(rank_, failure);
  state_.failure = failure.substr(0, net::kMaxControlPayload);
  operations_.leave(why);
  for (const auto& peer : links_.peers()) {
    if (!peer || peer->error || state_.error) continue;
    peer->outbox.flush_announcements();
    for (const auto& rail : peer->rails) send_goodbye_on(*rail);
    links_.mark_dirty(peer->rank);
  }
  state_.leaving = true;
  links_.flush();
}

/// The goodbye is the last frame of a rail. For a failed rail it follows the retransmission over
/// another rail, unless the peer leaves too and does not need the retransmission.
void Executor::send_goodbye_on(const Rail& rail) {
  Outbox& outbox = links_.peer(rail.stream.peer).outbox;
  const net::FrameHeader goodbye{.type = net::FrameType::goodbye,
                                 .message = static_cast<std::uint32_t>(rail.stream.rail)};
  const ConstBytes failure = std::as_bytes(std::span(state_.failure));
  if (!rail.failed) {
    outbox.queue_control_on(rail.stream.rail, goodbye, failure);
  } else if (rail.resent || rail.goodbye) {
    outbox.queue_control(goodbye, failure);
  }
}

}  // namespace gradwire::engine
