#pragma once

#include <array>
#include <cstdint>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"

namespace gradwire::engine {

/// One side's view of a rail between two ranks, sent over another rail while the rail fails (see
/// rail_failover.h). Encoded, in little-endian:
///
///   offset  0  u32  kind
///           4  u32  rail
///           8  u64  generation
///          16  u64  bytes written
///          24  u64  frames received
struct RailNotice {
  enum class Kind : std::uint32_t {
    failed = 0,   ///< The sender of the notice writes no more data to the rail.
    drained = 1,  ///< It has also read all bytes that had arrived when the peer stopped writing.
    suspect = 2,  ///< It asks the peer to fail the rail, because the rail makes no progress.
  };

  Kind kind = Kind::failed;
  std::uint32_t rail = 0;
  /// Failures of the rail so far, this one included. `suspect`: those before.
  std::uint64_t generation = 0;
  /// Bytes that the sender of the notice has written to the rail since the job started.
  std::uint64_t written_bytes = 0;
  /// `drained`: frames received completely since the rail was last put into use.
  std::uint64_t received_frames = 0;
};

inline constexpr std::size_t kRailNoticeBytes = 32;

std::array<std::byte, kRailNoticeBytes> encode(const RailNotice& notice);

/// Errors: corrupted, if the size or the kind is not one that encode() makes.
Result<RailNotice> decode_rail_notice(ConstBytes bytes);

}  // namespace gradwire::engine
