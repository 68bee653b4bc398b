#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gradwire {

/// What memory of a training run is for (Rajbhandari et al., "ZeRO: memory optimizations toward
/// training trillion parameter models", SC 2020, section 3: model states and residual states).
enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  optimiser,      ///< States of the optimiser, master weights included.
  activations,    ///< What forward keeps for backward, and what both make on the way.
  communication,  ///< Buffers of buckets, gathers and codecs.
  other,
};

inline constexpr std::size_t kMemoryCategories = 6;

/// "parameters", ..., as in files.
inline constexpr std::array<std::string_view, kMemoryCategories> kMemoryCategoryNames{
    "parameters", "gradients", "optimiser", "activations", "communication", "other"};

/// Bytes in use, by category.
using MemoryBytes = std::array<std::int64_t, kMemoryCategories>;

/// What was in use at one moment.
struct MemorySample {
  double seconds = 0;      ///< Since the run began.
  std::int64_t step = -1;  ///< During which; < 0: before the first.
  MemoryBytes bytes{};
};

/// Memory of one rank over time. Plain data: who measures it is in the layers above.
struct MemoryTimeline {
  std::vector<MemorySample> samples;  ///< In the order of time.
  std::int64_t peak_bytes = 0;  ///< Most that was in use at once, sampled or not; 0: not measured.
};

std::int64_t total_bytes(const MemoryBytes& bytes);

/// At most `most` of the samples (at least 1): of each of as many equal stretches of their number
/// the one with the most bytes, so that peaks stay.
std::vector<MemorySample> thinned(const std::vector<MemorySample>& samples, std::size_t most);

}  // namespace gradwire
