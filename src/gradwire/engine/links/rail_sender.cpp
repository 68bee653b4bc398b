#include "gradwire/engine/links/rail_sender.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/net/payload_checksum.h"

namespace gradwire::engine {
namespace {

/// Interval between updates of the rate. If no bytes are delivered, kStandstill: acknowledgements
/// may arrive in bursts.
constexpr Duration kMeasureFor = std::chrono::milliseconds(10);
constexpr Duration kStandstill = std::chrono::milliseconds(40);

/// Lower bound of the rate in bytes per second, because 0 means unknown.
constexpr double kMinRate = 1;

/// Returns true if a local op may change the memory of `op` once its frames have been written. (A
/// receive into this memory implies that the peer has received them.)
bool is_overwritten_locally(const CompiledProgram& program, schedule::OpIndex op) {
  for (const CompiledProgram::Edge& edge : program.dependents(op)) {
    const schedule::OpKind kind = program.program.ops[edge.op].kind;
    if (kind == schedule::OpKind::copy || kind == schedule::OpKind::reduce) return true;
  }
  return false;
}

/// Removes the last `bytes` bytes from `pieces`. Returns `bytes`.
std::size_t drop_last(std::span<ConstBytes> pieces, std::size_t& count, std::size_t bytes) {
  std::size_t left = bytes;
  while (left > 0 && pieces[count - 1].size() <= left) left -= pieces[--count].size();
  if (left > 0) pieces[count - 1] = pieces[count - 1].first(pieces[count - 1].size() - left);
  return bytes;
}

}  // namespace

OutgoingFrame RailSender::make(net::FrameHeader header, ConstBytes payload, bool lent,
                               std::optional<std::uint32_t> checksum) const {
  header.length = static_cast<std::uint32_t>(payload.size());
  if (checksums_) header.payload_checksum = checksum ? *checksum : net::payload_checksum(payload);
  OutgoingFrame frame;
  frame.fill(header, payload, lent);
  return frame;
}

Result<std::size_t> RailSender::write(net::Transport& transport, bool more) {
  std::array<ConstBytes, 64> pieces;
  std::size_t count = 0;
  std::size_t offered = queue_.gather(pieces, count);
  if (more && offered > gso_burst_) offered -= drop_last(pieces, count, offered % gso_burst_);
  Result<std::size_t> taken = transport.write(stream_, std::span(pieces).first(count));
  if (!taken) return taken;
  if (*taken < offered) writable_ = false;
  queue_.wrote(*taken);
  written_bytes_ += *taken;
  return taken;
}

const OutgoingFrame* RailSender::next_written() {
  if (!queue_.front_is_written()) return nullptr;
  OutgoingFrame frame = queue_.pop_written();
  completed_ += frame.size();
  if (!keeps_) {
    written_ = std::move(frame);
    return &written_;
  }
  if (frame.flight != nullptr &&
      is_overwritten_locally(frame.flight->operation.program(), frame.op)) {
    frame.keep_payload();
  }
  kept_.push_back({std::move(frame), completed_});
  return &kept_.back().frame;
}

void RailSender::measure(net::Transport& transport, Time now) {
  confirm(transport);
  const Duration passed = now - std::exchange(measured_at_, now);
  const std::size_t moved = delivered_ - std::exchange(measured_delivered_, delivered_);
  const std::size_t written = std::exchange(measured_written_, written_bytes_);
  const double seconds = std::chrono::duration<double>(passed).count();
  if (written == delivered_ || written_bytes_ == delivered_) {
    // The rail was idle for part of the time, so this rate is a lower bound.
    if (rate_ > 0 && seconds > 0) rate_ = std::max(rate_, static_cast<double>(moved) / seconds);
    busy_ = {};
    moved_ = 0;
    return;
  }
  busy_ += passed;
  moved_ += moved;
  if (busy_ < (moved_ > 0 ? kMeasureFor : kStandstill)) return;
  const double rate =
      static_cast<double>(moved_) / std::chrono::duration<double>(busy_).count() + kMinRate;
  rate_ = rate_ > 0 ? (rate_ + rate) / 2 : rate;
  update_round_trip(transport);
  busy_ = {};
  moved_ = 0;
}

void RailSender::update_round_trip(const net::Transport& transport) {
  round_trip_ = std::chrono::duration<double>(transport.round_trip(stream_)).count();
}

std::optional<double> RailSender::seconds_until(std::size_t bytes) const {
  if (rate_ == 0) return std::nullopt;
  const auto under_way = static_cast<double>(written_bytes_ - delivered_ + queue_.unwritten());
  const double waiting = std::max(under_way - rate_ * round_trip_, 0.0);
  return latency() + (waiting + static_cast<double>(bytes)) / rate_;
}

void RailSender::confirm(net::Transport& transport) {
  if (!is_writing() || !keeps_ || delivered_ == written_bytes_) return;
  delivered_ = transport.delivered(stream_);
  while (!kept_.empty() && kept_.front().end <= delivered_) {
    kept_.pop_front();
    ++confirmed_;
  }
}

void RailSender::keep_copies(const InFlightOperation& flight) {
  for (Kept& kept : kept_) kept.frame.outlive(flight);
}

Result<std::vector<OutgoingFrame>> RailSender::take_unreceived(std::uint64_t received) {
  GRADWIRE_CHECK(state_ == State::stopped);
  if (received < confirmed_ || received > confirmed_ + kept_.size()) {
    return failure(ErrorKind::corrupted,
                   fmt::format("the peer acknowledged {} frames; expected {} to {}", received,
                               confirmed_, confirmed_ + kept_.size()));
  }
  std::vector<OutgoingFrame> back;
  for (std::size_t i = received - confirmed_; i < kept_.size(); ++i) {
    OutgoingFrame& frame = back.emplace_back(std::move(kept_[i].frame));
    if (checksums_ && !frame.is_intact()) {
      return failure(ErrorKind::disconnected,
                     "a lost frame cannot be retransmitted: its memory was overwritten");
    }
    frame.keep_payload();
    frame.flight = nullptr;
  }
  for (OutgoingFrame& frame : queue_.frames()) back.push_back(std::move(frame));
  kept_.clear();
  queue_ = {};
  return back;
}

void RailSender::stop(net::Transport& transport) {
  confirm(transport);
  if (is_writing()) written_bytes_ += transport.abandon_write(stream_);
  state_ = State::stopped;
}

void RailSender::probe(Time now) {
  GRADWIRE_CHECK(state_ == State::stopped);
  state_ = State::probing;
  queue_ = {};
  kept_.clear();
  confirmed_ = 0;
  completed_ = written_bytes_;
  forget_rate(now);
}

void RailSender::resume(Time now) {
  GRADWIRE_CHECK(state_ == State::probing);
  state_ = State::live;
  forget_rate(now);
}

void RailSender::forget_rate(Time now) {
  rate_ = 0;
  busy_ = {};
  moved_ = 0;
  measured_at_ = now;
  measured_delivered_ = delivered_;
  measured_written_ = written_bytes_;
}

void RailSender::drop_messages() {
  queue_.drop_messages();
  kept_.clear();
}

}  // namespace gradwire::engine
