#include "gradwire/recipe/run_memory.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/memory/memory_ledger.h"
#include "gradwire/trace/memory_timeline.h"

namespace gradwire::recipe {
namespace {

constexpr std::size_t kValues = 2 + 2 * kMemoryCategories;

std::vector<double> values_of(const report::MemoryPeak& peak) {
  std::vector<double> values{static_cast<double>(peak.bytes), static_cast<double>(peak.resident)};
  values.insert(values.end(), peak.at_peak.begin(), peak.at_peak.end());
  values.insert(values.end(), peak.max.begin(), peak.max.end());
  return values;
}

report::MemoryPeak peak_of(const double* values) {
  const auto whole = [&values] { return static_cast<std::int64_t>(*values++); };
  report::MemoryPeak peak{.bytes = whole(), .resident = whole()};
  std::ranges::generate(peak.at_peak, whole);
  std::ranges::generate(peak.max, whole);
  return peak;
}

}  // namespace

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::int64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

report::MemoryPeak max_peak(c10d::ProcessGroup& group, const MemoryTracker* tracker) {
  auto own = tracker == nullptr ? report::MemoryPeak{} : tracker->ledger().peak();
  own.resident = peak_resident_bytes();
  // Each rank writes to a separate range, so that the sum concatenates them.
  const auto rank = static_cast<std::size_t>(group.getRank());
  std::vector<double> all(kValues * static_cast<std::size_t>(group.getSize()));
  std::ranges::copy(values_of(own), all.begin() + static_cast<std::ptrdiff_t>(kValues * rank));
  all = sum_over_ranks(group, std::move(all));
  report::MemoryPeak max;
  std::int64_t resident = 0;
  for (std::size_t begin = 0; begin < all.size(); begin += kValues) {
    const auto peak = peak_of(all.data() + begin);
    resident = std::max(resident, peak.resident);
    if (begin == 0 || peak.bytes > max.bytes) max = peak;
  }
  max.resident = resident;
  return max;
}

}  // namespace gradwire::recipe
