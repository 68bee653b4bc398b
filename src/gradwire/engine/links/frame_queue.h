#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/engine/operations/in_flight_operation.h"
#include "gradwire/net/frame.h"

namespace gradwire::engine {

/// A frame that is not, or only partly, written.
struct OutgoingFrame {
  /// Payloads up to this size are copied behind the header, so that both are one piece.
  static constexpr std::size_t kInline = 64;

  std::array<std::byte, net::kFrameHeaderBytes + kInline> head;
  std::size_t head_bytes = net::kFrameHeaderBytes;
  ConstBytes payload;                   ///< A larger payload: lent, or in `owned`.
  std::vector<std::byte> owned;         ///< Copy of the payload, if it is not lent.
  InFlightOperation* flight = nullptr;  ///< Null for control frames.
  schedule::OpIndex op = 0;
  std::size_t begin = 0;  ///< Range of the message's bytes.
  std::size_t end = 0;

  std::size_t size() const { return head_bytes + payload.size(); }

  /// Sets header and payload. `lent`: the payload outlives the frame.
  void fill(const net::FrameHeader& header, ConstBytes content, bool lent);
  /// Copies a lent payload, before its memory becomes invalid.
  void keep_payload();
  /// The same, if the frame belongs to the flight `ended`, which has completed.
  void outlive(const InFlightOperation& ended);
  /// Returns true if the payload still matches its checksum. Only for streams with checksums.
  bool is_intact() const;
};

/// FIFO of the frames to one stream, which numbers them in order. Reuses its memory.
class FrameQueue {
 public:
  bool empty() const { return first_ == frames_.size(); }
  std::size_t unwritten() const { return bytes_ - written_; }
  std::span<OutgoingFrame> frames() { return std::span(frames_).subspan(first_); }

  void push(OutgoingFrame frame);

  /// Collects the next pieces to write, as many as fit. Returns their size in bytes.
  std::size_t gather(std::array<ConstBytes, 64>& pieces, std::size_t& count) const;

  /// Records that `bytes` more bytes have been written. pop_written() returns the completed frames.
  void wrote(std::size_t bytes) { written_ += bytes; }
  bool front_is_written() const { return !empty() && written_ >= frames_[first_].size(); }
  OutgoingFrame pop_written();

  /// Drops all data frames except partly written ones, which keep a copy of their payload.
  /// Renumbers the remaining frames.
  void drop_messages();

 private:
  std::vector<OutgoingFrame> frames_;
  std::size_t first_ = 0;    ///< Index of the first frame; earlier entries are unused.
  std::size_t written_ = 0;  ///< Written bytes of the first frame.
  std::size_t bytes_ = 0;    ///< Size of all frames, including written bytes.
  std::uint64_t next_ = 0;   ///< Number of the next frame.
};

}  // namespace gradwire::engine
