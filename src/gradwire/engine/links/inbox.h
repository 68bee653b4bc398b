#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/engine/links/payload_sink.h"
#include "gradwire/net/frame.h"
#include "gradwire/net/payload_checksum.h"

namespace gradwire::engine {

/// Decodes the byte stream from a peer into frames. A payload that is only stored is read directly
/// into its final place. One that is reduced is combined from the read buffer (or shared memory)
/// while it is in the cache. Buffers only partial headers and elements, and frames that must be
/// whole before any byte is used (PayloadSink::whole).
class Inbox {
 public:
  /// Handles the frames. An error ends the stream.
  class Handler {
   public:
    virtual ~Handler() = default;
    /// Called when a header has arrived; `length` payload bytes follow. Returns their destination,
    /// which must stay valid until complete().
    virtual Result<PayloadSink> begin(const net::FrameHeader& header) = 0;
    /// Called when the payload has been stored and its checksum verified.
    virtual Status complete(const net::FrameHeader& header) = 0;
  };

  /// `checksums`: payloads have checksums (Transport::needs_checksums).
  explicit Inbox(bool checksums) : checksums_(checksums) {}

  /// Returns the buffers for the next bytes of the stream, in order: the final place of the current
  /// payload, if it is read directly, then `shared`.
  struct Reading {
    std::array<Bytes, 2> pieces;
    std::size_t count = 0;
    std::size_t size = 0;
  };
  Reading read_pieces(Bytes shared) const;

  /// Processes `size` bytes that were read into the pieces of read_pieces(). Fails with
  /// corrupted, or with the handler's errors.
  Status received(Bytes shared, std::size_t size, Handler& handler);

  /// Processes the next bytes of the stream in place; does not use them after returning. Fails as
  /// received().
  Status take(ConstBytes bytes, Handler& handler);

  /// Discards the rest of the current frame, if any: its destination is no longer valid.
  void abandon();

  /// Number of completely received frames.
  std::uint64_t frames() const { return frames_; }

 private:
  bool reads_directly() const {
    return in_frame_ && sink_.to != nullptr && sink_.operand == nullptr;
  }
  std::size_t remaining() const { return header_.length - received_; }
  std::size_t unit() const;
  ConstBytes add_partial(ConstBytes bytes);
  Result<std::size_t> consume(ConstBytes bytes, Handler& handler);
  Status begin(ConstBytes bytes, Handler& handler);
  std::size_t take_payload(ConstBytes bytes);
  void account(ConstBytes payload);
  Status finish_if_complete(Handler& handler);

  bool checksums_;
  net::FrameHeader header_;
  PayloadSink sink_;          ///< Destination of arriving bytes.
  PayloadSink final_sink_;    ///< Final destination of the whole frame, if `whole`.
  std::size_t received_ = 0;  ///< Processed payload bytes of the current frame.
  std::size_t direct_ = 0;    ///< Length of the last frame if it was read directly, otherwise 0.
  net::PayloadChecksum checksum_;
  bool in_frame_ = false;
  std::size_t partial_bytes_ = 0;
  std::array<std::byte, net::kFrameHeaderBytes>
      partial_{};  ///< Start of a partial header or element.
  std::vector<std::byte> stage_;
  std::uint64_t frames_ = 0;
};

}  // namespace gradwire::engine
