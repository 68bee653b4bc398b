#pragma once

#include <cstdint>
#include <span>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"

namespace gradwire {

/// What a frame is for. The values are on the wire.
enum class FrameType : std::uint8_t {
  announce = 1,     ///< "I have posted this operation": the payload is its fingerprint.
  data = 2,         ///< A piece of a message.
  ping = 3,         ///< "I am alive"; with `message` 1, the other side is to say so too.
  abort = 4,        ///< The job has failed: the payload says why.
  goodbye = 5,      ///< The rank leaves as planned: nothing more comes on stream `message`.
  rail_notice = 6,  ///< Failover of another rail: the payload is a RailNotice.
};

/// Head of everything that travels once a connection has proved who it is. On the wire:
///
///   offset  0  u16  magic 0x5747 ("GW")
///           2  u8   version
///           3  u8   type
///           4  u32  length of the payload that follows, in bytes
///           8  u32  channel of the operation
///          12  u32  index of the message within the operation
///          16  u64  sequence number of the operation in its channel
///          24  u64  offset of the payload within the message, in bytes
///          32  u64  number of the frame on its stream, from 0
///          40  u32  checksum of the payload (net/payload_checksum.h)
///          44  u32  CRC-32C of the 44 bytes before
///
/// little-endian. The header has a checksum of its own so that its length can be believed before
/// the payload is there. It is a multiple of 8 bytes long, so that elements in a ring of shared
/// memory stay aligned. The number shows the receiver that a whole frame is missing, or comes
/// again, although all checksums are right.
struct FrameHeader {
  FrameType type = FrameType::ping;
  std::uint32_t length = 0;
  std::uint32_t channel = 0;
  std::uint32_t message = 0;
  std::uint64_t sequence = 0;
  std::uint64_t offset = 0;
  std::uint64_t number = 0;  ///< Given when it is queued for a stream (FrameQueue).
  std::uint32_t payload_checksum = 0;
};

inline constexpr std::size_t kFrameHeaderBytes = 48;
inline constexpr std::uint8_t kFrameVersion = 5;

/// No frame carries more: a peer that says so is broken or not ours.
inline constexpr std::uint32_t kMaxDataPayload = 4u << 20;
inline constexpr std::uint32_t kMaxControlPayload = 1024;

void encode(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> into);

/// Changes the number of an encoded header.
void set_number(std::span<std::byte, kFrameHeaderBytes> header, std::uint64_t number);

/// Errors: corrupted (magic, checksum, type, or a length over the limit of its type), unsupported
/// (another version; names both).
Result<FrameHeader> decode(std::span<const std::byte, kFrameHeaderBytes> from);

}  // namespace gradwire
