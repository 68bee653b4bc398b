#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/base/bytes.h"
#include "gradwire/base/element.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::engine {

/// Description of an operation on which ranks must agree. Ranks that exchange data compare
/// fingerprints before any byte of it is used.
struct Fingerprint {
  schedule::Collective collective = schedule::Collective::barrier;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  std::uint64_t count = 0;           ///< Elements, summed over all chunks.
  std::array<char, 16> algorithm{};  ///< Name of the schedule, zero-padded.
  /// For an all_to_all with unequal parts (whose count is 0): the elements that go to the peer, and
  /// those expected from it. Otherwise both are the caller's layout (OperationOptions::layout).
  std::uint64_t sent = 0;
  std::uint64_t expected = 0;

  bool operator==(const Fingerprint&) const = default;

  void set_algorithm(std::string_view name);
  std::string_view algorithm_name() const;

  /// Returns the fingerprint as the peer should see it: `sent` and `expected` swapped.
  Fingerprint from_there() const;

  /// "all_reduce of 1000 float32 (sum, ring)".
  std::string describe() const;
};

inline constexpr std::size_t kFingerprintBytes = 48;

void encode(const Fingerprint& fingerprint, std::span<std::byte, kFingerprintBytes> into);

/// Fails with corrupted on an unknown collective, type or reduction.
Result<Fingerprint> decode_fingerprint(ConstBytes from);

}  // namespace gradwire::engine
