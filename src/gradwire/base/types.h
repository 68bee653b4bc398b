#pragma once

#include <chrono>
#include <cstdint>

namespace gradwire {

/// Position of a process in its job, 0 .. world size - 1.
using Rank = std::int32_t;

/// Maximum number of ranks of a job. Frames, tables and handshakes rely on it.
inline constexpr int kMaxRanks = 4096;

using Duration = std::chrono::nanoseconds;

/// A point on the monotonic clock, or on the virtual clock of a simulation. Code below the
/// communicator receives the time as an argument; only base/clock reads it.
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// `duration` after `time`; Time::max() if that is later, as with Duration::max() for "never".
constexpr Time after(Time time, Duration duration) {
  return duration >= Time::max() - time ? Time::max() : time + duration;
}

/// The operations that fail with a peer.
enum class FailureDomain : std::uint8_t {
  job,   ///< All, on all ranks: whatever fails, ends the executors of the job.
  pair,  ///< Those between the two ranks, on both; others go on. For messages only.
};

}  // namespace gradwire
