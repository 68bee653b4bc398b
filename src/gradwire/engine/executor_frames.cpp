#include <algorithm>

#include "gradwire/engine/executor.h"
#include "gradwire/engine/failure_text.h"
#include "gradwire/net/abort_message.h"

/// The executor's handling of received frames.
namespace gradwire::engine {

Result<PayloadSink> Executor::begin_frame(Rail& rail, const net::FrameHeader& header) {
  rail.early = false;
  if (header.type != net::FrameType::data) return PayloadSink{.to = rail.control.data()};
  if (state_.error || state_.leaving) return PayloadSink{};
  const Rank from = rail.stream.peer;
  const OperationKey key{header.channel, header.sequence, header.group};
  if (InFlightOperation* flight = in_flight_.find(key, from)) {
    const Peer& source = peer(from);
    Result<PayloadSink> sink = resolve_sink(*flight, from, header, !source.has_rails());
    // A partial reduction cannot be undone if the rest of the frame is lost with its rail.
    const bool may_be_resent = source.outbox.live_rails() > 1 || rail.failed;
    if (sink) sink->whole = sink->operand != nullptr && may_be_resent;
    return sink;
  }
  if (in_flight_.was_posted(key, from)) {
    return failure(ErrorKind::corrupted, "data for a completed operation");
  }
  Result<std::byte*> room = early_.make_room(rail.stream, header);
  if (!room) return tl::unexpected(room.error());
  rail.early = true;
  announce_if_credit_low(peer(from));
  return PayloadSink{.to = *room};
}

Status Executor::complete_frame(Rail& rail, const net::FrameHeader& header) {
  if (rail.failed && rail.drained) rail.peer_probed = true;
  switch (header.type) {
    case net::FrameType::data:
      return complete_data(rail, header);
    case net::FrameType::announce:
      return on_announcement(rail, header);
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
      return failover_.on_notice(rail, header);
  }
  return {};
}

Status Executor::complete_data(Rail& rail, const net::FrameHeader& header) {
  if (state_.error || state_.leaving) return {};
  const Rank from = rail.stream.peer;
  const OperationKey key{header.channel, header.sequence, header.group};
  InFlightOperation* flight = in_flight_.find(key, from);
  if (rail.early) early_.complete(key, rail.stream);
  if (flight == nullptr) return {};
  if (rail.early) {
    replay(*flight);  // The operation was posted while this frame was being received.
  } else {
    const schedule::OpIndex op =
        flight->operation.program().exchange_with(from)->receives[header.message];
    advance(*flight, op, header.offset, header.offset + header.length,
            forwardable_payload(rail, flight->operation, op, header));
  }
  return {};
}

/// Returns the payload if it was stored unmodified and has a checksum; otherwise nothing.
VerifiedPayload Executor::forwardable_payload(const Rail& rail, const Operation& operation,
                                              schedule::OpIndex index,
                                              const net::FrameHeader& header) const {
  const schedule::Op& op = operation.program().program.ops[index];
  if (op.kind != schedule::OpKind::recv || op.postscale || !transport_.needs_checksums(rail.stream))
    return {};
  return {{operation.destination(index) + header.offset, header.length}, header.payload_checksum};
}

Status Executor::on_announcement(Rail& rail, const net::FrameHeader& header) {
  if (state_.error || state_.leaving) return {};
  const Rank from = rail.stream.peer;
  const OperationKey key{header.channel, header.sequence, header.group};
  const Result<Fingerprint> theirs =
      decode_fingerprint(ConstBytes(rail.control).first(header.length));
  if (!theirs) return tl::unexpected(theirs.error());
  if (InFlightOperation* flight = in_flight_.find(key, from)) {
    accept_announcement(*flight, from, *theirs);
    return {};
  }
  if (!in_flight_.was_posted(key, from)) {
    GRADWIRE_RETURN_IF_ERROR(early_.add_announcement(key, from, *theirs));
    if (key.is_message()) match_receives();
    return {};
  }
  peer(from).outbox.announced(key);  // Already complete here: the peer only receives.
  mark_dirty(from);                  // Its announcement frees eager credit.
  return {};
}

void Executor::on_abort(Rail& rail, const net::FrameHeader& header) {
  const net::AbortMessage message =
      net::decode_abort(ConstBytes(rail.control).first(header.length), rail.stream.peer);
  const bool first_hand = message.origin == rail.stream.peer;  // A forwarded one names it already.
  fail(message.kind, first_hand ? reported_by(message.origin, message.text) : message.text,
       message.origin);
}

void Executor::on_ping(Rail& rail, const net::FrameHeader& header) {
  if (header.message == 0 || rail.failed || state_.error) return;
  peer(rail.stream.peer).outbox.queue_control_on(rail.stream.rail, {.type = net::FrameType::ping});
  mark_dirty(rail.stream.peer);
}

/// Each rail has its own goodbye: frames on one rail may arrive after the goodbye of another.
void Executor::on_goodbye(Rail& rail, const net::FrameHeader& header) {
  Peer& from = peer(rail.stream.peer);
  const auto* text = reinterpret_cast<const char*>(rail.control.data());
  if (header.length > 0) from.failure.assign(text, header.length);
  if (header.message < from.rails.size()) from.rails[header.message]->goodbye = true;
  const bool all = std::ranges::all_of(from.rails, [](const auto& r) { return r->goodbye; });
  if (!all || from.departed) return;
  from.departed = true;
  ++departed_;
  check_departed();
}

/// A rank may leave when it has done its part of all operations, including those that other ranks
/// post later: a broadcast's root need not wait for its leaves. A rank that still needs the
/// departed peer fails.
void Executor::check_departed() {
  if (departed_ == 0 || state_.error) return;
  for (const auto& flight : in_flight_.all()) {
    for (const CompiledProgram::Exchange& exchange : flight->operation.program().exchanges) {
      if (!peer(exchange.peer).departed || !flight->operation.needs(exchange.peer)) continue;
      fail_because_of(exchange.peer, ErrorKind::disconnected,
                      departure_text(transport_.describe({exchange.peer, 0}),
                                     peer(exchange.peer).failure, flight->operation));
      return;
    }
  }
  if (departed_ + 1 < static_cast<int>(peers_.size())) return;
  const auto from_any = std::ranges::find_if(
      unmatched_, [](const OperationRequest& receive) { return bool{receive.program_from}; });
  if (from_any != unmatched_.end()) fail(ErrorKind::disconnected, no_sender_text(*from_any));
}

void Executor::sent(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin,
                    std::size_t end) {
  advance(flight, op, begin, end);
}

}  // namespace gradwire::engine
