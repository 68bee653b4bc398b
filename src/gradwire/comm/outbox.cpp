#include "gradwire/comm/outbox.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/crc32c.h"

namespace gradwire {
namespace {

/// Frames cut ahead of the kernel's appetite: enough to fill one system call, little enough that an
/// urgent operation does not queue behind much.
constexpr std::size_t kCommitSegments = 2;

/// A message is passed on in about this many segments, so that the next rank can begin soon, unless
/// they would be so small that each costs more than it saves.
constexpr std::size_t kSegmentsPerMessage = 16;
constexpr std::size_t kSmallestSegment = 16 * 1024;
constexpr std::size_t kSegmentAlignment = 64;

}  // namespace

Outbox::Outbox(Rank peer, OutboxLimits limits, const Transport& transport)
    : peer_(peer), limits_(limits), checksums_(transport.needs_checksums({peer, 0})) {}

void Outbox::queue_control(FrameType type, OperationKey key, ConstBytes payload) {
  say_unsaid();
  commit_control(type, key, payload);
}

void Outbox::commit_control(FrameType type, OperationKey key, ConstBytes payload) {
  GRADWIRE_CHECK(payload.size() <= kMaxControlPayload);
  OutgoingFrame frame;
  frame.fill({.type = type,
              .length = static_cast<std::uint32_t>(payload.size()),
              .channel = key.channel,
              .sequence = key.sequence,
              .payload_crc = checksum(payload)},
             payload, false);
  committed_.push(std::move(frame));
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
    commit_control(FrameType::announce, announcement.key, announcement.fingerprint);
    if (announcement.flight != nullptr) announcement.flight->sides[announcement.side].told_over = 1;
  }
  unsaid_.clear();
  unsaid_bytes_ = 0;
}

void Outbox::forget(const Flight& flight) {
  for (Announcement& announcement : unsaid_) {
    if (announcement.flight == &flight) announcement.flight = nullptr;
  }
}

void Outbox::queue_message(Flight& flight, OpIndex op) {
  const auto same = [&](const Message& m) { return m.flight == &flight && m.op == op; };
  if (std::ranges::any_of(messages_, same)) return;
  const std::size_t done = flight.operation.done(op);
  if (flight.operation.complete(op)) return;
  const int urgency = flight.operation.request().urgency;
  const auto less_urgent = [&](const Message& m) {
    return m.flight->operation.request().urgency < urgency;
  };
  messages_.insert(std::ranges::find_if(messages_, less_urgent),
                   {.flight = &flight,
                    .op = op,
                    .side = static_cast<std::size_t>(flight.side_of(peer_)),
                    .segment = segment_for(flight.operation.size(op)),
                    .framed = done});
}

std::size_t Outbox::segment_for(std::size_t message_bytes) const {
  const std::size_t part = message_bytes / kSegmentsPerMessage;
  const std::size_t aligned = (part + kSegmentAlignment - 1) & ~(kSegmentAlignment - 1);
  return std::min(std::max(aligned, kSmallestSegment), limits_.segment_bytes);
}

void Outbox::announced(OperationKey key) {
  std::erase_if(eager_debts_, [&](const EagerDebt& debt) {
    if (debt.key == key) eager_debt_ -= debt.bytes;
    return debt.key == key;
  });
}

Status Outbox::flush(Transport& transport, Listener& listener) {
  while (writable_) {
    while (committed_.bytes() < kCommitSegments * limits_.segment_bytes && commit_next()) {
    }
    if (committed_.empty()) return {};
    std::array<ConstBytes, 64> pieces;
    std::size_t count = 0;
    const std::size_t offered = committed_.gather(pieces, count);
    Result<std::size_t> taken = transport.write({peer_, 0}, std::span(pieces).first(count));
    if (!taken) return tl::unexpected(std::move(taken.error()));
    total_bytes_ += *taken;
    if (*taken < offered) writable_ = false;
    written(*taken, listener);
  }
  return {};
}

void Outbox::written(std::size_t bytes, Listener& listener) {
  committed_.wrote(bytes);
  while (committed_.front_is_written()) {
    const OutgoingFrame frame = committed_.pop_written();
    if (frame.flight != nullptr) listener.sent(*frame.flight, frame.op, frame.begin, frame.end);
  }
}

bool Outbox::may_go(const Message& message) const {
  if (message.flight->sides[message.side].announced) return true;
  const std::size_t size = message.flight->operation.size(message.op);
  return size <= limits_.eager_bytes && eager_debt_ + size <= limits_.eager_budget;
}

bool Outbox::commit_next() {
  for (auto at = messages_.begin(); at != messages_.end(); ++at) {
    const Operation::Allowance allowed = at->flight->operation.allowance(at->op);
    const std::size_t bytes = std::min(allowed.bytes - at->framed, at->segment);
    const bool ends = allowed.last && at->framed + bytes == allowed.bytes;
    if ((bytes < at->segment && !ends) || !may_go(*at)) continue;
    commit(*at, bytes);
    if (ends) messages_.erase(at);
    return true;
  }
  return false;
}

void Outbox::commit(Message& message, std::size_t bytes) {
  say_unsaid();
  const Operation& operation = message.flight->operation;
  if (!message.flight->sides[message.side].announced) {
    eager_debts_.push_back({operation.key(), bytes});
    eager_debt_ += bytes;
  }
  const ConstBytes payload(operation.source(message.op) + message.framed, bytes);
  OutgoingFrame frame;
  frame.flight = message.flight;
  frame.op = message.op;
  frame.begin = message.framed;
  frame.end = message.framed + bytes;
  frame.fill({.type = FrameType::data,
              .length = static_cast<std::uint32_t>(bytes),
              .channel = operation.key().channel,
              .message = operation.program().message[message.op],
              .sequence = operation.key().sequence,
              .offset = message.framed,
              .payload_crc = checksum(payload)},
             payload, true);
  committed_.push(std::move(frame));
  message.framed += bytes;
  payload_bytes_ += bytes;
}

std::uint32_t Outbox::checksum(ConstBytes payload) const {
  return checksums_ ? crc32c(payload) : 0;
}

void Outbox::drop_messages() {
  messages_.clear();
  unsaid_.clear();
  unsaid_bytes_ = 0;
  committed_.drop_messages();
}

}  // namespace gradwire
