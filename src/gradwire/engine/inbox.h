#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/engine/landing.h"
#include "gradwire/net/frame.h"
#include "gradwire/net/payload_checksum.h"

namespace gradwire {

/// Turns one byte stream from a peer back into frames. Payloads land in their final place: read
/// there directly where they are plain, or reduced out of the memory they were read into (or lie
/// in) while it is in the cache. Nothing is kept here but a few bytes of a header or an element,
/// and a frame that must be whole before any of it is used (Landing::whole).
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

  /// `checksums`: whether payloads carry them (Transport::needs_checksums).
  explicit Inbox(bool checksums) : checksums_(checksums) {}

  /// Where the next bytes of the stream should be read to, in order: perhaps a place of its own for
  /// the payload under way, then `shared`.
  struct Reading {
    std::array<Bytes, 2> pieces;
    std::size_t count = 0;
    std::size_t size = 0;
  };
  Reading where_to_read(Bytes shared) const;

  /// `size` bytes have been read to where_to_read()'s pieces. Errors: corrupted, or the handler's.
  Status received(Bytes shared, std::size_t size, Handler& handler);

  /// Takes the next bytes of the stream from where they lie; needs none of them afterwards.
  Status take(ConstBytes bytes, Handler& handler);

  /// The rest of the frame under way, if any, is to be thrown away: its memory is no longer ours.
  void abandon();

  /// Frames that have come completely.
  std::uint64_t frames() const { return frames_; }

 private:
  bool lands_directly() const {
    return in_frame_ && landing_.to != nullptr && landing_.operand == nullptr;
  }
  std::size_t remaining() const { return header_.length - landed_; }
  std::size_t unit() const;
  ConstBytes carry(ConstBytes bytes);
  Result<std::size_t> consume(ConstBytes bytes, Handler& handler);
  Status begin(ConstBytes bytes, Handler& handler);
  std::size_t take_payload(ConstBytes bytes);
  void account(ConstBytes payload);
  Status end_if_full(Handler& handler);

  bool checksums_;
  FrameHeader header_;
  Landing landing_;         ///< Where the bytes go as they come.
  Landing after_;           ///< Where they go from there once they are all here, if `whole`.
  std::size_t landed_ = 0;  ///< Payload bytes of the frame under way that have landed.
  std::size_t direct_ = 0;  ///< Length of the last frame, if its payload was read to its place.
  PayloadChecksum checksum_;
  bool in_frame_ = false;
  std::size_t carried_ = 0;
  std::array<std::byte, kFrameHeaderBytes> carry_{};  ///< Of a header or an element: its beginning.
  std::vector<std::byte> stage_;
  std::uint64_t frames_ = 0;
};

}  // namespace gradwire
