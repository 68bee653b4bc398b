#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gradwire {

/// Use of a training run's memory (Rajbhandari et al., "ZeRO: memory optimizations toward training
/// trillion parameter models", SC 2020, section 3: model states and residual states).
enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  optimizer,      ///< Optimizer states, including master weights.
  activations,    ///< Saved by forward for backward, and temporaries of both.
  communication,  ///< Buffers of buckets, gathers and codecs.
  other,
};

inline constexpr std::size_t kMemoryCategories = 6;

/// Category names in files: "parameters", ...
inline constexpr std::array<std::string_view, kMemoryCategories> kMemoryCategoryNames{
    "parameters", "gradients", "optimiser", "activations", "communication", "other"};

/// Bytes in use, by category.
using MemoryBytes = std::array<std::int64_t, kMemoryCategories>;

/// Memory in use at one moment.
struct MemorySample {
  double seconds = 0;      ///< Since the run began.
  std::int64_t step = -1;  ///< Current step; < 0: before the first.
  MemoryBytes bytes{};
};

/// Memory of one rank over time. Plain data, measured by the layers above.
struct MemoryTimeline {
  std::vector<MemorySample> samples;  ///< In order of time.
  std::int64_t peak_bytes = 0;        ///< Peak, whether sampled or not; 0: not measured.
};

std::int64_t total_bytes(const MemoryBytes& bytes);

/// Returns at most `max_samples` samples (at least 1): divides the samples into that many groups of
/// consecutive ones and keeps the maximum of each, so that peaks are preserved.
std::vector<MemorySample> thinned(const std::vector<MemorySample>& samples,
                                  std::size_t max_samples);

}  // namespace gradwire
