#include "gradwire/trace/memory_timeline.h"

#include <algorithm>
#include <numeric>

namespace gradwire {

std::int64_t total_bytes(const MemoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::vector<MemorySample> thinned(const std::vector<MemorySample>& samples,
                                  std::size_t max_samples) {
  if (samples.size() <= max_samples) return samples;
  const auto border = [&](std::size_t stretch) {
    return samples.begin() + static_cast<std::ptrdiff_t>(stretch * samples.size() / max_samples);
  };
  const auto total = [](const MemorySample& sample) { return total_bytes(sample.bytes); };
  std::vector<MemorySample> kept;
  for (std::size_t i = 0; i < max_samples; ++i) {
    kept.push_back(*std::ranges::max_element(border(i), border(i + 1), {}, total));
  }
  return kept;
}

}  // namespace gradwire
