#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/engine/flight.h"
#include "gradwire/net/frame.h"

namespace gradwire {

/// A frame that is to be written, or is half written.
struct OutgoingFrame {
  /// Payloads up to this size are copied behind the header, so that they go in one piece.
  static constexpr std::size_t kInline = 64;

  std::array<std::byte, kFrameHeaderBytes + kInline> head;
  std::size_t head_bytes = kFrameHeaderBytes;
  ConstBytes payload;            ///< What does not fit there: lent, or `owned`.
  std::vector<std::byte> owned;  ///< Holds the payload where nothing else does.
  Flight* flight = nullptr;      ///< Null for control frames.
  OpIndex op = 0;
  std::size_t begin = 0;  ///< Bytes of the message that it is.
  std::size_t end = 0;

  std::size_t size() const { return head_bytes + payload.size(); }

  /// Sets header and payload. `lent`: the payload outlives the frame.
  void fill(const FrameHeader& header, ConstBytes content, bool lent);
  /// The lent payload will not last: keeps a copy.
  void keep_payload();
  /// The same, if it is of `flight`, which is over.
  void outlive(const Flight& ended);
  /// Whether the payload is still what the header says. Only where there are checksums.
  bool is_intact() const;
};

/// Frames in the order in which they are written to one stream, numbered in that order. Keeps its
/// memory.
class FrameQueue {
 public:
  bool empty() const { return first_ == frames_.size(); }
  std::size_t unwritten() const { return bytes_ - written_; }
  std::span<OutgoingFrame> frames() { return std::span(frames_).subspan(first_); }

  void push(OutgoingFrame frame);

  /// The pieces that come next, as many as fit. Returns how many bytes they are.
  std::size_t gather(std::array<ConstBytes, 64>& pieces, std::size_t& count) const;

  /// `bytes` more bytes have been written. The frames that end with them come out of pop_written().
  void wrote(std::size_t bytes) { written_ += bytes; }
  bool front_is_written() const { return !empty() && written_ >= frames_[first_].size(); }
  OutgoingFrame pop_written();

  /// Drops all that carry messages, but for those of which bytes have been written: they keep a
  /// copy of their rest. Numbers the others anew.
  void drop_messages();

 private:
  std::vector<OutgoingFrame> frames_;
  std::size_t first_ = 0;    ///< Those before it are gone.
  std::size_t written_ = 0;  ///< Bytes of the first one that are written.
  std::size_t bytes_ = 0;    ///< Of all frames, also of what is written of them.
  std::uint64_t next_ = 0;   ///< Number of the next frame.
};

}  // namespace gradwire
