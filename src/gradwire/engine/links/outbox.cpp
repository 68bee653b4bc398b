#include "gradwire/engine/links/outbox.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/check.h"

namespace gradwire::engine {
namespace {

/// Segments queued as frames ahead of the kernel: enough to fill one system call, few enough to
/// limit head-of-line blocking of operations with a higher priority.
constexpr std::size_t kCommitSegments = 2;

/// Bytes queued per rail if there are several; less, so that the next segments can go to any rail
/// that accepts bytes.
constexpr std::size_t kCommitPerRail = 64 * 1024;

constexpr std::uint32_t bit(int rail) {
  return std::uint32_t{1} << rail;
}

net::FrameHeader announcement_of(OperationKey key) {
  return {.type = net::FrameType::announce,
          .channel = key.channel,
          .sequence = key.sequence,
          .group = key.group};
}

}  // namespace

Outbox::Outbox(Rank peer, OutboxLimits limits, net::Transport& transport)
    : peer_(peer), limits_(limits), transport_(transport) {
  const int rails = transport.rails(peer);
  for (int i = 0; i < rails; ++i)
    senders_.emplace_back(net::StreamId{peer, i}, transport, rails > 1);
  max_queued_ = kCommitSegments * limits_.segment_bytes;
  if (rails > 1) max_queued_ = std::min(max_queued_, kCommitPerRail);
}

void Outbox::queue_control(const net::FrameHeader& header, ConstBytes payload) {
  flush_announcements();
  queue_control_on(first_, header, payload);
}

void Outbox::queue_control_on(int rail, const net::FrameHeader& header, ConstBytes payload) {
  GRADWIRE_CHECK(payload.size() <= net::kMaxControlPayload);
  sender(rail).push(sender(rail).make(header, payload, false));
}

void Outbox::announce(InFlightOperation& flight, std::size_t exchange) {
  Announcement& announcement = pending_announcements_.emplace_back();
  announcement.flight = &flight;
  announcement.exchange = exchange;
  announcement.key = flight.operation.key();
  encode(flight.fingerprint_for(peer_), announcement.fingerprint);
  for (const schedule::OpIndex op : flight.operation.program().exchanges[exchange].receives) {
    unannounced_bytes_ += flight.operation.size(op);
  }
}

void Outbox::flush_announcements() {
  for (const Announcement& announcement : pending_announcements_) {
    queue_control_on(first_, announcement_of(announcement.key), announcement.fingerprint);
    if (announcement.flight == nullptr) continue;
    announcement.flight->peer_states[announcement.exchange].announced_rails |= bit(first_);
  }
  pending_announcements_.clear();
  unannounced_bytes_ = 0;
}

/// Announces the operation on this rail ahead of its data.
void Outbox::announce_on_rail(int rail, InFlightOperation& flight, std::size_t exchange) {
  if (rail == first_) flush_announcements();
  std::uint32_t& announced_rails = flight.peer_states[exchange].announced_rails;
  if ((announced_rails & bit(rail)) != 0) return;
  std::array<std::byte, kFingerprintBytes> fingerprint;
  encode(flight.fingerprint_for(peer_), fingerprint);
  queue_control_on(rail, announcement_of(flight.operation.key()), fingerprint);
  announced_rails |= bit(rail);
}

void Outbox::forget(const InFlightOperation& flight) {
  for (Announcement& announcement : pending_announcements_) {
    if (announcement.flight == &flight) announcement.flight = nullptr;
  }
  if (senders_.size() == 1) return;
  confirm();
  for (RailSender& rail : senders_) rail.keep_copies(flight);
}

void Outbox::queue_message(InFlightOperation& flight, schedule::OpIndex op,
                           const VerifiedPayload& payload) {
  const auto same = [&](const Message& m) { return m.flight == &flight && m.op == op; };
  const auto known = std::ranges::find_if(messages_, same);
  if (known != messages_.end()) return update_checksums(*known, payload);
  const std::size_t done = flight.operation.done(op);
  if (flight.operation.complete(op)) return;
  const int priority = flight.operation.request().priority;
  const auto lower_priority = [&](const Message& m) {
    return m.flight->operation.request().priority < priority;
  };
  const auto added = messages_.insert(
      std::ranges::find_if(messages_, lower_priority),
      {.flight = &flight,
       .op = op,
       .exchange = static_cast<std::size_t>(flight.exchange_index(peer_)),
       .segment = schedule::segment_of(flight.operation.size(op), limits_.segment_bytes,
                                       flight.operation.request().segments),
       .framed = done});
  update_checksums(*added, payload);
}

void Outbox::update_checksums(Message& message, const VerifiedPayload& payload) const {
  const Operation& operation = message.flight->operation;
  if (!senders_.front().has_checksums() || operation.size(message.op) <= message.segment ||
      operation.program().dependencies(message.op).empty()) {
    return;
  }
  const Operation::Allowance ready = operation.allowance(message.op);
  message.checksums.add({operation.source(message.op), ready.bytes}, message.segment, ready.last,
                        payload);
}

void Outbox::announced(OperationKey key) {
  std::erase_if(outstanding_, [&](const OutstandingEager& eager) {
    if (eager.key == key) outstanding_eager_bytes_ -= eager.bytes;
    return eager.key == key;
  });
}

void Outbox::measure(Time now) {
  if (senders_.size() == 1) return;
  for (RailSender& rail : senders_) {
    if (rail.is_writing()) rail.measure(transport_, now);
  }
}

Result<bool> Outbox::flush(int rail, std::size_t budget, Observer& observer) {
  RailSender& to = sender(rail);
  std::size_t written = 0;
  while (to.can_write()) {
    while (to.live() && to.queued_bytes() < max_queued_ && commit_next(rail)) {
    }
    if (to.idle()) return true;
    if (written >= budget) return false;
    const bool more = to.queued_bytes() >= max_queued_;
    const Result<std::size_t> taken = to.write(transport_, more);
    if (!taken) return tl::unexpected(taken.error());
    total_bytes_ += *taken;
    written += *taken;
    while (const OutgoingFrame* frame = to.next_written()) {
      if (frame->flight == nullptr) continue;
      observer.sent(*frame->flight, frame->op, frame->begin, frame->end);
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
bool Outbox::may_send(const Message& message, int rail) const {
  const std::size_t size = message.flight->operation.size(message.op);
  if (rail != first_ && !is_striped(message)) return false;
  if (message.flight->peer_states[message.exchange].announced) return true;
  return size <= limits_.eager_bytes && outstanding_eager_bytes_ + size <= limits_.eager_credit;
}

bool Outbox::commit_next(int rail) {
  for (auto at = messages_.begin(); at != messages_.end(); ++at) {
    const Operation::Allowance allowed = at->flight->operation.allowance(at->op);
    const std::size_t bytes = std::min(allowed.bytes - at->framed, at->segment);
    const bool ends = allowed.last && at->framed + bytes == allowed.bytes;
    if ((bytes < at->segment && !ends) || !may_send(*at, rail)) continue;
    if (is_striped(*at) && !delivers_in_time(rail, bytes)) continue;
    commit(*at, bytes, rail);
    if (ends) messages_.erase(at);
    return true;
  }
  return false;
}

/// Returns true if a segment on this rail arrives before any other rail could deliver all remaining
/// bytes. Always true for the rail that would deliver it first, so one of them takes it if all
/// decide by the same measurements. If the rate of this rail is unknown, its latency alone counts.
bool Outbox::delivers_in_time(int rail, std::size_t bytes) const {
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
  announce_on_rail(rail, *message.flight, message.exchange);
  const Operation& operation = message.flight->operation;
  if (!message.flight->peer_states[message.exchange].announced) {
    outstanding_.push_back({operation.key(), bytes});
    outstanding_eager_bytes_ += bytes;
  }
  OutgoingFrame frame =
      sender(rail).make({.type = net::FrameType::data,
                         .channel = operation.key().channel,
                         .message = operation.program().message[message.op],
                         .sequence = operation.key().sequence,
                         .group = operation.key().group,
                         .offset = message.framed},
                        {operation.source(message.op) + message.framed, bytes}, true,
                        message.checksums.at(message.framed / message.segment));
  frame.flight = message.flight;
  frame.op = message.op;
  frame.begin = message.framed;
  frame.end = message.framed + bytes;
  sender(rail).push(std::move(frame));
  message.framed += bytes;
  payload_bytes_ += bytes;
}

bool Outbox::stop(int rail) {
  sender(rail).stop(transport_);
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
  queue_control_on(rail, {.type = net::FrameType::ping});
}

void Outbox::resume(int rail, Time now) {
  sender(rail).resume(now);
  if (!sender(first_).live()) first_ = rail;
}

void Outbox::reannounce(InFlightOperation& flight, int rail) const {
  const int index = flight.exchange_index(peer_);
  if (index >= 0) flight.peer_states[static_cast<std::size_t>(index)].announced_rails &= ~bit(rail);
}

int Outbox::live_rails() const {
  return static_cast<int>(std::ranges::count_if(senders_, &RailSender::live));
}

Status Outbox::resend(int rail, std::uint64_t received) {
  Result<std::vector<OutgoingFrame>> lost = sender(rail).take_unreceived(received);
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
  pending_announcements_.clear();
  unannounced_bytes_ = 0;
  for (RailSender& rail : senders_) rail.drop_messages();
}

}  // namespace gradwire::engine
