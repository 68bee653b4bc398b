#include <algorithm>

#include "gradwire/engine/executor_peer.h"
#include "gradwire/engine/failure_text.h"
#include "gradwire/net/abort_message.h"

/// The executor's handling of received frames.
namespace gradwire {

Result<Landing> Executor::begin_frame(Rail& rail, const FrameHeader& header) {
  rail.early = false;
  if (header.type != FrameType::data) return Landing{.to = rail.control.data()};
  if (error_ || said_goodbye_) return Landing{};
  const Rank from = rail.stream.peer;
  const OperationKey key{header.channel, header.sequence};
  if (Flight* flight = flights_.find(key, from)) {
    const Peer& source = peer(from);
    Result<Landing> landing = landing_of(*flight, from, header, !source.has_rails());
    // A partial reduction cannot be undone if the rest of the frame is lost with its rail.
    const bool may_come_again = source.outbox.live_rails() > 1 || rail.failed;
    if (landing) landing->whole = landing->operand != nullptr && may_come_again;
    return landing;
  }
  if (flights_.was_posted(key, from)) {
    return failure(ErrorKind::corrupted, "data for a completed operation");
  }
  Result<std::byte*> room = early_.make_room(rail.stream, header);
  if (!room) return tl::unexpected(room.error());
  rail.early = true;
  speak_if_awaited(peer(from));
  return Landing{.to = *room};
}

Status Executor::complete_frame(Rail& rail, const FrameHeader& header) {
  if (rail.failed && rail.drained) rail.peer_probed = true;
  switch (header.type) {
    case FrameType::data:
      return complete_data(rail, header);
    case FrameType::announce:
      return hear_announcement(rail, header);
    case FrameType::abort:
      hear_abort(rail, header);
      break;
    case FrameType::goodbye:
      hear_goodbye(rail, header);
      break;
    case FrameType::ping:
      on_ping(rail, header);
      break;
    case FrameType::rail_notice:
      return on_rail_notice(rail, header);
  }
  return {};
}

Status Executor::complete_data(Rail& rail, const FrameHeader& header) {
  if (error_ || said_goodbye_) return {};
  const Rank from = rail.stream.peer;
  const OperationKey key{header.channel, header.sequence};
  Flight* flight = flights_.find(key, from);
  if (rail.early) early_.complete(key, rail.stream);
  if (flight == nullptr) return {};
  if (rail.early) {
    replay(*flight);  // The operation was posted while this frame was being received.
  } else {
    const OpIndex op = flight->operation.program().exchange_with(from)->receives[header.message];
    pass(*flight, op, header.offset, header.offset + header.length,
         as_it_came(rail, flight->operation, op, header));
  }
  return {};
}

/// Returns the payload if it was stored unmodified and has a checksum; otherwise nothing.
Arrived Executor::as_it_came(const Rail& rail, const Operation& operation, OpIndex index,
                             const FrameHeader& header) const {
  const Op& op = operation.program().program.ops[index];
  if (op.kind != OpKind::recv || op.finish || !transport_.needs_checksums(rail.stream)) return {};
  return {{operation.destination(index) + header.offset, header.length}, header.payload_checksum};
}

Status Executor::hear_announcement(Rail& rail, const FrameHeader& header) {
  if (error_ || said_goodbye_) return {};
  const Rank from = rail.stream.peer;
  const OperationKey key{header.channel, header.sequence};
  const Result<Fingerprint> theirs =
      decode_fingerprint(ConstBytes(rail.control).first(header.length));
  if (!theirs) return tl::unexpected(theirs.error());
  if (Flight* flight = flights_.find(key, from)) {
    accept_announcement(*flight, from, *theirs);
    return {};
  }
  if (!flights_.was_posted(key, from)) {
    if (Status held = early_.announce(key, from, *theirs); !held) return held;
    if (key.is_message()) match_any();
    return {};
  }
  peer(from).outbox.announced(key);  // Already complete here: the peer only receives.
  mark_dirty(from);                  // Its announcement frees eager credit.
  return {};
}

void Executor::hear_abort(Rail& rail, const FrameHeader& header) {
  const AbortMessage message =
      decode_abort(ConstBytes(rail.control).first(header.length), rail.stream.peer);
  const bool first_hand = message.origin == rail.stream.peer;  // A forwarded one names it already.
  fail(message.kind, first_hand ? reported_by(message.origin, message.text) : message.text,
       message.origin);
}

/// Each rail has its own goodbye: frames on one rail may arrive after the goodbye of another.
void Executor::hear_goodbye(Rail& rail, const FrameHeader& header) {
  Peer& from = peer(rail.stream.peer);
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
  if (departed_ == 0 || error_) return;
  for (const auto& flight : flights_.all()) {
    for (const CompiledProgram::Exchange& exchange : flight->operation.program().exchanges) {
      if (!peer(exchange.peer).departed || !flight->operation.needs(exchange.peer)) continue;
      fail(ErrorKind::disconnected,
           left_during(transport_.describe({exchange.peer, 0}), flight->operation), rank_);
      return;
    }
  }
  if (!from_any_.empty() && departed_ + 1 == static_cast<int>(peers_.size())) {
    fail(ErrorKind::disconnected, left_alone(from_any_.front()), rank_);
  }
}

void Executor::sent(Flight& flight, OpIndex op, std::size_t begin, std::size_t end) {
  pass(flight, op, begin, end);
}

}  // namespace gradwire
