#pragma once

#include <cstdint>
#include <span>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"

namespace gradwire::net {

/// Frame types. The values are on the wire.
enum class FrameType : std::uint8_t {
  announce = 1,     ///< The sender has posted an operation; payload: its fingerprint.
  data = 2,         ///< A segment of a message.
  ping = 3,         ///< Liveness; with `message` 1, the receiver replies with a ping.
  abort = 4,        ///< The job has failed; payload: the cause.
  goodbye = 5,      ///< Graceful shutdown: the last frame of stream `message`.
  rail_notice = 6,  ///< Failover of another rail; payload: a RailNotice.
};

/// Header of all frames after the handshake of a connection. On the wire:
///
///   offset  0  u16  magic 0x5747 ("GW")
///           2  u8   version
///           3  u8   type
///           4  u32  length of the payload that follows, in bytes
///           8  u32  channel of the operation
///          12  u32  index of the message within the operation
///          16  u48  sequence number of the operation in its channel
///          22  u16  group of ranks whose operation it is
///          24  u64  offset of the payload within the message, in bytes
///          32  u64  number of the frame on its stream, from 0
///          40  u32  checksum of the payload (net/payload_checksum.h)
///          44  u32  CRC-32C of the 44 bytes before
///
/// little-endian. The header has a separate checksum, so that its length is verified before the
/// payload arrives. Its size is a multiple of 8 bytes, so that elements in a shared-memory ring
/// stay aligned. By the number, the receiver detects lost or repeated frames with valid checksums.
struct FrameHeader {
  FrameType type = FrameType::ping;
  std::uint32_t length = 0;
  std::uint32_t channel = 0;
  std::uint32_t message = 0;
  std::uint64_t sequence = 0;  ///< Below 2^48.
  std::uint16_t group = 0;
  std::uint64_t offset = 0;
  std::uint64_t number = 0;  ///< Set when the frame is queued for a stream (FrameQueue).
  std::uint32_t payload_checksum = 0;
};

inline constexpr std::size_t kFrameHeaderBytes = 48;
inline constexpr std::uint8_t kFrameVersion = 6;

/// Maximum payload of a frame, in bytes; a larger length is an error (corrupted).
inline constexpr std::uint32_t kMaxDataPayload = 4u << 20;
inline constexpr std::uint32_t kMaxControlPayload = 1024;

void encode(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> into);

/// Sets the number of an encoded header and updates its checksum.
void set_number(std::span<std::byte, kFrameHeaderBytes> header, std::uint64_t number);

/// Fails with corrupted (magic, checksum, type, or a length above the limit of the type) or with
/// unsupported (another version; the error contains both).
Result<FrameHeader> decode(std::span<const std::byte, kFrameHeaderBytes> from);

}  // namespace gradwire::net
