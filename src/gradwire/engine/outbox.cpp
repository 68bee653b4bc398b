#include "gradwire/engine/outbox.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gradwire/base/check.h"

namespace gradwire {
namespace {

/// Segments queued as frames ahead of the kernel: enough to fill one system call, few enough to
/// limit head-of-line blocking of operations with a higher priority.
constexpr std::size_t kCommitSegments = 2;

/// Bytes queued per rail if there are several; less, so that the next segments can go to any rail
/// that accepts bytes.
constexpr std::size_t kCommitPerRail = 64 * 1024;

constexpr std::size_t kSegmentAlignment = 64;

constexpr std::uint32_t bit(int rail) {
  return std::uint32_t{1} << rail;
}

FrameHeader announcement_of(OperationKey key) {
  return {.type = FrameType::announce, .channel = key.channel, .sequence = key.sequence};
}

}  // namespace

std::size_t segment_of(std::size_t message_bytes, std::size_t most, int segments) {
  const int wanted = segments > 0 ? segments : kSegmentsPerMessage;
  const std::size_t part = message_bytes / static_cast<std::size_t>(wanted);
  const std::size_t aligned = (part + kSegmentAlignment - 1) & ~(kSegmentAlignment - 1);
  return std::min(std::max(aligned, kSmallestSegment), most);
}

Outbox::Outbox(Rank peer, OutboxLimits limits, Transport& transport)
    : peer_(peer), limits_(limits), transport_(transport) {
  const int rails = transport.rails(peer);
  for (int i = 0; i < rails; ++i) senders_.emplace_back(StreamId{peer, i}, transport, rails > 1);
  ahead_ = kCommitSegments * limits_.segment_bytes;
  if (rails > 1) ahead_ = std::min(ahead_, kCommitPerRail);
}

void Outbox::queue_control(const FrameHeader& header, ConstBytes payload) {
  say_unsaid();
  queue_control_on(first_, header, payload);
}

void Outbox::queue_control_on(int rail, const FrameHeader& header, ConstBytes payload) {
  GRADWIRE_CHECK(payload.size() <= kMaxControlPayload);
  sender(rail).push(sender(rail).make(header, payload, false));
}

void Outbox::announce(Flight& flight, std::size_t side) {
  Announcement& announcement = unsaid_.emplace_back();
  announcement.flight = &flight;
  announcement.side = side;
  announcement.key = flight.operation.key();
  encode(flight.fingerprint_for(peer_), announcement.fingerprint);
  for (const OpIndex op : flight.operation.program().exchanges[side].receives) {
    unsaid_bytes_ += flight.operation.size(op);
  }
}

void Outbox::say_unsaid() {
  for (const Announcement& announcement : unsaid_) {
    queue_control_on(first_, announcement_of(announcement.key), announcement.fingerprint);
    if (announcement.flight == nullptr) continue;
    announcement.flight->sides[announcement.side].told_over |= bit(first_);
  }
  unsaid_.clear();
  unsaid_bytes_ = 0;
}

/// Announces the operation on this rail ahead of its data.
void Outbox::tell_over(int rail, Flight& flight, std::size_t side) {
  if (rail == first_) say_unsaid();
  std::uint32_t& told = flight.sides[side].told_over;
  if ((told & bit(rail)) != 0) return;
  std::array<std::byte, kFingerprintBytes> fingerprint;
  encode(flight.fingerprint_for(peer_), fingerprint);
  queue_control_on(rail, announcement_of(flight.operation.key()), fingerprint);
  told |= bit(rail);
}

void Outbox::forget(const Flight& flight) {
  for (Announcement& announcement : unsaid_) {
    if (announcement.flight == &flight) announcement.flight = nullptr;
  }
  if (senders_.size() == 1) return;
  confirm();
  for (RailSender& rail : senders_) rail.keep_copies(flight);
}

void Outbox::queue_message(Flight& flight, OpIndex op, const Arrived& arrived) {
  const auto same = [&](const Message& m) { return m.flight == &flight && m.op == op; };
  const auto known = std::ranges::find_if(messages_, same);
  if (known != messages_.end()) return sum_up(*known, arrived);
  const std::size_t done = flight.operation.done(op);
  if (flight.operation.complete(op)) return;
  const int urgency = flight.operation.request().urgency;
  const auto less_urgent = [&](const Message& m) {
    return m.flight->operation.request().urgency < urgency;
  };
  const auto added =
      messages_.insert(std::ranges::find_if(messages_, less_urgent),
                       {.flight = &flight,
                        .op = op,
                        .side = static_cast<std::size_t>(flight.side_of(peer_)),
                        .segment = segment_of(flight.operation.size(op), limits_.segment_bytes,
                                              flight.operation.request().segments),
                        .framed = done});
  sum_up(*added, arrived);
}

void Outbox::sum_up(Message& message, const Arrived& arrived) const {
  const Operation& operation = message.flight->operation;
  if (!senders_.front().has_checksums() || operation.size(message.op) <= message.segment ||
      operation.program().before(message.op).empty()) {
    return;
  }
  const Operation::Allowance ready = operation.allowance(message.op);
  message.sums.add({operation.source(message.op), ready.bytes}, message.segment, ready.last,
                   arrived);
}

void Outbox::announced(OperationKey key) {
  std::erase_if(eager_debts_, [&](const EagerDebt& debt) {
    if (debt.key == key) eager_debt_ -= debt.bytes;
    return debt.key == key;
  });
}

void Outbox::measure(Time now) {
  if (senders_.size() == 1) return;
  for (RailSender& rail : senders_) {
    if (rail.is_writing()) rail.measure(transport_, now);
  }
}

Result<bool> Outbox::flush(int rail, std::size_t budget, Listener& listener) {
  RailSender& to = sender(rail);
  std::size_t written = 0;
  while (to.can_write()) {
    while (to.live() && to.queued_bytes() < ahead_ && commit_next(rail)) {
    }
    if (to.idle()) return true;
    if (written >= budget) return false;
    const bool more = to.queued_bytes() >= ahead_;
    const Result<std::size_t> taken = to.write(transport_, more);
    if (!taken) return tl::unexpected(taken.error());
    total_bytes_ += *taken;
    written += *taken;
    while (const OutgoingFrame* frame = to.next_written()) {
      if (frame->flight == nullptr) continue;
      listener.sent(*frame->flight, frame->op, frame->begin, frame->end);
    }
  }
  return true;
}

bool Outbox::is_striped(const Message& message) const {
  return senders_.size() > 1 && message.flight->operation.size(message.op) > limits_.eager_bytes;
}

/// Returns true if the message may be sent on this rail now. Small messages stay on one rail: they
/// gain nothing from striping, and data for an operation that the peer has not posted must arrive
/// in order.
bool Outbox::may_go(const Message& message, int rail) const {
  const std::size_t size = message.flight->operation.size(message.op);
  if (rail != first_ && !is_striped(message)) return false;
  if (message.flight->sides[message.side].announced) return true;
  return size <= limits_.eager_bytes && eager_debt_ + size <= limits_.eager_budget;
}

bool Outbox::commit_next(int rail) {
  for (auto at = messages_.begin(); at != messages_.end(); ++at) {
    const Operation::Allowance allowed = at->flight->operation.allowance(at->op);
    const std::size_t bytes = std::min(allowed.bytes - at->framed, at->segment);
    const bool ends = allowed.last && at->framed + bytes == allowed.bytes;
    if ((bytes < at->segment && !ends) || !may_go(*at, rail)) continue;
    if (is_striped(*at) && !is_worth_it(rail, bytes)) continue;
    commit(*at, bytes, rail);
    if (ends) messages_.erase(at);
    return true;
  }
  return false;
}

/// Returns true if a segment on this rail arrives before any other rail could deliver all remaining
/// bytes. Always true for the rail that would deliver it first, so one of them takes it if all
/// decide by the same measurements. If the rate of this rail is unknown, its latency alone counts.
bool Outbox::is_worth_it(int rail, std::size_t bytes) const {
  const RailSender& taker = senders_[static_cast<std::size_t>(rail)];
  const double here = taker.seconds_until(bytes).value_or(taker.latency());
  std::size_t left = 0;
  for (const Message& m : messages_) left += m.flight->operation.size(m.op) - m.framed;
  return std::ranges::all_of(senders_, [&](const RailSender& other) {
    if (!other.live()) return true;
    const std::optional<double> there = other.seconds_until(left);
    return &other == &taker || !there || here <= *there;
  });
}

void Outbox::commit(Message& message, std::size_t bytes, int rail) {
  tell_over(rail, *message.flight, message.side);
  const Operation& operation = message.flight->operation;
  if (!message.flight->sides[message.side].announced) {
    eager_debts_.push_back({operation.key(), bytes});
    eager_debt_ += bytes;
  }
  OutgoingFrame frame = sender(rail).make({.type = FrameType::data,
                                           .channel = operation.key().channel,
                                           .message = operation.program().message[message.op],
                                           .sequence = operation.key().sequence,
                                           .offset = message.framed},
                                          {operation.source(message.op) + message.framed, bytes},
                                          true, message.sums.at(message.framed / message.segment));
  frame.flight = message.flight;
  frame.op = message.op;
  frame.begin = message.framed;
  frame.end = message.framed + bytes;
  sender(rail).push(std::move(frame));
  message.framed += bytes;
  payload_bytes_ += bytes;
}

bool Outbox::stop(int rail) {
  sender(rail).confirm(transport_);
  sender(rail).stop();
  // A recovered rail does not become the first again: small messages would change rails, and only
  // one rail keeps their order.
  if (sender(first_).live()) return true;
  const auto first = std::ranges::find_if(senders_, &RailSender::live);
  if (first == senders_.end()) return false;
  first_ = static_cast<int>(first - senders_.begin());
  return true;
}

void Outbox::probe(int rail, Time now) {
  sender(rail).probe(now);
  queue_control_on(rail, {.type = FrameType::ping});
}

void Outbox::resume(int rail, Time now) {
  sender(rail).resume(now);
  if (!sender(first_).live()) first_ = rail;
}

void Outbox::announce_again(Flight& flight, int rail) const {
  const int side = flight.side_of(peer_);
  if (side >= 0) flight.sides[static_cast<std::size_t>(side)].told_over &= ~bit(rail);
}

int Outbox::live_rails() const {
  return static_cast<int>(std::ranges::count_if(senders_, &RailSender::live));
}

Status Outbox::send_again(int rail, std::uint64_t received) {
  Result<std::vector<OutgoingFrame>> lost = sender(rail).take_back(received);
  if (!lost) return tl::unexpected(lost.error());
  for (OutgoingFrame& frame : *lost) sender(first_).push(std::move(frame));
  return {};
}

void Outbox::confirm() {
  for (RailSender& rail : senders_) rail.confirm(transport_);
}

bool Outbox::is_done() const {
  return std::ranges::all_of(senders_, [&](const RailSender& rail) {
    return senders_.size() == 1 ? rail.idle() : !rail.live() || !rail.undelivered();
  });
}

void Outbox::drop_messages() {
  messages_.clear();
  unsaid_.clear();
  unsaid_bytes_ = 0;
  for (RailSender& rail : senders_) rail.drop_messages();
}

}  // namespace gradwire
