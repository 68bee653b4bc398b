#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "gradwire/base/bytes.h"

namespace gradwire::net {

/// Key known only to the two ends of one connection.
using SessionKey = std::array<std::byte, 32>;

/// HKDF-SHA256 (RFC 5869) of the job's secret, salted with `transcript`, the messages of the
/// handshake. The key differs for each connection, and is the same at both ends only if both saw
/// the same messages.
SessionKey derive_session_key(std::string_view secret, ConstBytes transcript);

}  // namespace gradwire::net

struct XXH3_state_s;  // From xxhash.h.

namespace gradwire::net {

/// Checksum of a frame's payload: the lower 32 bits of XXH3-64 (xxHash 0.8, no seed). A random
/// corruption goes undetected with probability 2^-32. Each payload is checksummed twice: before it
/// is written (engine/links/segment_checksums.h: when) and after it is read. For 100 MB, on one
/// core with AVX2, that adds 0.2 ms to the copy that follows and 2.6 ms to the one before. CRC-32C
/// added 1.5 and 4.6 ms: a twelfth of both processors at 5 Gb/s. Thread-safe.
std::uint32_t payload_checksum(ConstBytes payload);

/// Incremental payload_checksum(). Not thread-safe; reuses its memory.
class PayloadChecksum {
 public:
  /// Begins a payload of `size` bytes.
  void begin(std::size_t size);
  /// Adds the next bytes.
  void add(ConstBytes piece);
  /// Returns the checksum once all bytes have been added.
  std::uint32_t value() const { return value_; }

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };

  std::size_t size_ = 0;
  std::size_t added_ = 0;
  std::uint32_t value_ = 0;
  std::unique_ptr<XXH3_state_s, Free> state_;  ///< For a payload in several pieces.
};

}  // namespace gradwire::net
