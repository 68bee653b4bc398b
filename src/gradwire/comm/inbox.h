#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/comm/landing.h"
#include "gradwire/net/frame.h"

namespace gradwire {

/// Turns the byte stream from one peer back into frames. Payloads land in their final place, read
/// there directly where they are plain, or reduced out of the buffer they were read into while it
/// is in the cache; nothing is kept here but a few bytes of a header or an element.
class Inbox {
 public:
  /// Decides about frames. Errors end the stream.
  class Handler {
   public:
    virtual ~Handler() = default;
    /// A header has come; `length` bytes will follow. The place must stay valid until complete().
    virtual Result<Landing> begin(const FrameHeader& header) = 0;
    /// The payload has landed and its checksum is right.
    virtual Status complete(const FrameHeader& header) = 0;
  };

  /// Where the next bytes of the stream should be read to, in order: perhaps a place of its own for
  /// the payload under way, then `shared` behind what was carried over.
  struct Reading {
    std::array<Bytes, 2> pieces;
    std::size_t count = 0;
  };
  Reading where_to_read(Bytes shared);

  /// `size` bytes have been read to where_to_read()'s pieces. Errors: corrupted, or the handler's.
  Status received(Bytes shared, std::size_t size, Handler& handler);

  /// The rest of the frame under way, if any, is to be thrown away: its memory is no longer ours.
  void abandon() { landing_ = {}; }

 private:
  bool lands_directly() const {
    return in_frame_ && landing_.to != nullptr && landing_.operand == nullptr && carried_ == 0;
  }
  std::size_t remaining() const { return header_.length - landed_; }
  Result<std::size_t> consume(ConstBytes bytes, Handler& handler);
  Status begin(ConstBytes bytes, Handler& handler);
  std::size_t take_payload(ConstBytes bytes);
  void account(ConstBytes payload);
  Status end_if_full(Handler& handler);

  FrameHeader header_;
  Landing landing_;
  std::size_t landed_ = 0;  ///< Payload bytes of the frame under way that have landed.
  std::uint32_t crc_ = 0;
  bool in_frame_ = false;
  std::size_t carried_ = 0;
  std::array<std::byte, kFrameHeaderBytes> carry_{};
};

}  // namespace gradwire
