#include "gradwire/comm/outbox.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/crc32c.h"

namespace gradwire {
namespace {

/// Frames cut ahead of the kernel's appetite: enough to fill one system call, little enough that an
/// urgent operation does not queue behind much.
constexpr std::size_t kCommitSegments = 2;

}  // namespace

void Outbox::queue_control(FrameType type, OperationKey key, ConstBytes payload) {
  GRADWIRE_CHECK(payload.size() <= kMaxControlPayload);
  Frame& frame = committed_.emplace_back();
  frame.owned.assign(payload.begin(), payload.end());
  frame.payload = frame.owned;
  encode({.type = type,
          .length = static_cast<std::uint32_t>(payload.size()),
          .channel = key.channel,
          .sequence = key.sequence,
          .payload_crc = crc32c(payload)},
         frame.header);
  committed_bytes_ += frame.size();
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
  messages_.insert(std::ranges::find_if(messages_, less_urgent), {&flight, op, done});
}

void Outbox::announced(OperationKey key) {
  std::erase_if(eager_debts_, [&](const EagerDebt& debt) {
    if (debt.key == key) eager_debt_ -= debt.bytes;
    return debt.key == key;
  });
}

Status Outbox::flush(Transport& transport, Listener& listener) {
  while (writable_) {
    while (committed_bytes_ < kCommitSegments * limits_.segment_bytes && commit_next()) {
    }
    if (committed_.empty()) return {};
    std::array<ConstBytes, 64> pieces;
    std::size_t count = 0;
    const std::size_t offered = gather(pieces, count);
    Result<std::size_t> taken = transport.write(peer_, std::span(pieces).first(count));
    if (!taken) return tl::unexpected(std::move(taken.error()));
    total_bytes_ += *taken;
    if (*taken < offered) writable_ = false;
    written(*taken, listener);
  }
  return {};
}

std::size_t Outbox::gather(std::array<ConstBytes, 64>& pieces, std::size_t& count) const {
  std::size_t offered = 0;
  std::size_t skip = front_written_;
  const auto add = [&](ConstBytes piece) {
    const std::size_t skipped = std::min(skip, piece.size());
    skip -= skipped;
    if (piece.size() == skipped) return;
    pieces[count++] = piece.subspan(skipped);
    offered += piece.size() - skipped;
  };
  for (const Frame& frame : committed_) {
    if (count + 2 > pieces.size()) break;
    add(frame.header);
    add(frame.payload);
  }
  return offered;
}

void Outbox::written(std::size_t bytes, Listener& listener) {
  front_written_ += bytes;
  while (!committed_.empty() && front_written_ >= committed_.front().size()) {
    const Frame frame = std::move(committed_.front());
    committed_.pop_front();
    front_written_ -= frame.size();
    committed_bytes_ -= frame.size();
    if (frame.flight != nullptr) listener.sent(*frame.flight, frame.op, frame.end);
  }
}

bool Outbox::may_go(const Message& message) const {
  if (message.flight->announced_by(peer_)) return true;
  const std::size_t size = message.flight->operation.size(message.op);
  return size <= limits_.eager_bytes && eager_debt_ + size <= limits_.eager_budget;
}

bool Outbox::commit_next() {
  for (auto at = messages_.begin(); at != messages_.end(); ++at) {
    const Operation::Allowance allowed = at->flight->operation.allowance(at->op);
    const std::size_t bytes = std::min(allowed.bytes - at->framed, limits_.segment_bytes);
    const bool ends = allowed.last && at->framed + bytes == allowed.bytes;
    if ((bytes < limits_.segment_bytes && !ends) || !may_go(*at)) continue;
    commit(*at, bytes);
    if (ends) messages_.erase(at);
    return true;
  }
  return false;
}

void Outbox::commit(Message& message, std::size_t bytes) {
  Operation& operation = message.flight->operation;
  if (!message.flight->announced_by(peer_)) {
    eager_debts_.push_back({operation.key(), bytes});
    eager_debt_ += bytes;
  }
  Frame& frame = committed_.emplace_back();
  frame.payload = {operation.source(message.op) + message.framed, bytes};
  frame.flight = message.flight;
  frame.op = message.op;
  frame.end = message.framed + bytes;
  encode({.type = FrameType::data,
          .length = static_cast<std::uint32_t>(bytes),
          .channel = operation.key().channel,
          .message = operation.program().message[message.op],
          .sequence = operation.key().sequence,
          .offset = message.framed,
          .payload_crc = crc32c(frame.payload)},
         frame.header);
  message.framed += bytes;
  committed_bytes_ += frame.size();
  payload_bytes_ += bytes;
}

void Outbox::drop_messages() {
  messages_.clear();
  const bool front_is_partial = front_written_ > 0;
  std::size_t position = 0;
  std::erase_if(committed_, [&](Frame& frame) {
    const bool keep = frame.flight == nullptr || (position == 0 && front_is_partial);
    ++position;
    if (!keep) committed_bytes_ -= frame.size();
    return !keep;
  });
  if (committed_.empty() || committed_.front().flight == nullptr) return;
  Frame& half = committed_.front();
  half.owned.assign(half.payload.begin(), half.payload.end());
  half.payload = half.owned;
  half.flight = nullptr;
}

}  // namespace gradwire
