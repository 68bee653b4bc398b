#include "gradwire/engine/links/frame_queue.h"

#include <algorithm>
#include <cstring>

#include "gradwire/net/payload_checksum.h"

namespace gradwire::engine {
namespace {

/// Removed frames are erased from the vector in batches of this size.
constexpr std::size_t kLot = 32;

}  // namespace

void OutgoingFrame::fill(const net::FrameHeader& header, ConstBytes content, bool lent) {
  encode(header, std::span(head).first<net::kFrameHeaderBytes>());
  if (content.size() <= kInline) {
    if (!content.empty())
      std::memcpy(head.data() + net::kFrameHeaderBytes, content.data(), content.size());
    head_bytes = net::kFrameHeaderBytes + content.size();
    return;
  }
  payload = content;
  if (!lent) keep_payload();
}

void OutgoingFrame::keep_payload() {
  if (payload.empty() || !owned.empty()) return;
  owned.assign(payload.begin(), payload.end());
  payload = owned;
}

void OutgoingFrame::outlive(const InFlightOperation& ended) {
  if (flight != &ended) return;
  keep_payload();
  flight = nullptr;
}

bool OutgoingFrame::is_intact() const {
  if (payload.empty() || !owned.empty()) return true;
  const Result<net::FrameHeader> header =
      net::decode(std::span(head).first<net::kFrameHeaderBytes>());
  return header && header->payload_checksum == net::payload_checksum(payload);
}

void FrameQueue::push(OutgoingFrame frame) {
  net::set_number(std::span(frame.head).first<net::kFrameHeaderBytes>(), next_++);
  bytes_ += frame.size();
  frames_.push_back(std::move(frame));
}

std::size_t FrameQueue::gather(std::array<ConstBytes, 64>& pieces, std::size_t& count) const {
  std::size_t offered = 0;
  std::size_t skip = written_;
  const auto add = [&](ConstBytes piece) {
    const std::size_t skipped = std::min(skip, piece.size());
    skip -= skipped;
    if (piece.size() == skipped) return;
    pieces[count++] = piece.subspan(skipped);
    offered += piece.size() - skipped;
  };
  for (std::size_t i = first_; i < frames_.size() && count + 2 <= pieces.size(); ++i) {
    add(ConstBytes(frames_[i].head).first(frames_[i].head_bytes));
    add(frames_[i].payload);
  }
  return offered;
}

OutgoingFrame FrameQueue::pop_written() {
  OutgoingFrame frame = std::move(frames_[first_++]);
  written_ -= frame.size();
  bytes_ -= frame.size();
  if (first_ == frames_.size() || first_ == kLot) {
    frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  return frame;
}

void FrameQueue::drop_messages() {
  next_ -= frames().size();
  std::vector<OutgoingFrame> kept;
  std::size_t begin = 0;
  for (OutgoingFrame& frame : frames()) {
    const bool begun = begin < written_;
    begin += frame.size();
    if (frame.flight != nullptr && !begun) continue;
    frame.keep_payload();
    frame.flight = nullptr;
    net::set_number(std::span(frame.head).first<net::kFrameHeaderBytes>(), next_++);
    kept.push_back(std::move(frame));
  }
  frames_ = std::move(kept);
  first_ = 0;
  bytes_ = 0;
  for (const OutgoingFrame& frame : frames_) bytes_ += frame.size();
}

}  // namespace gradwire::engine
