#include "gradwire/train/memory/run_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "gradwire/train/memory/memory_ledger.h"

namespace gradwire {

ReportedMemory::~ReportedMemory() {
  // The ledger may outlive this.
  for (auto& [data, block] : blocks_) ledger_->remove(block);
}

void ReportedMemory::reportMemoryUsage(void* data, std::int64_t bytes,
                                       std::size_t /*total_allocated*/,
                                       std::size_t /*total_reserved*/, c10::Device device) {
  if (device.type() != device_) return;
  const auto [category, scope] = current_memory_label();
  const std::lock_guard lock(mutex_);
  forget(data);
  if (bytes > 0) ledger_->add(blocks_[data], bytes, category, scope);
}

void ReportedMemory::relabel(const c10::DataPtr& data, MemoryCategory category) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data.get());
  if (found != blocks_.end()) ledger_->relabel(found->second, category);
}

/// Ignores blocks allocated before this was installed.
void ReportedMemory::forget(void* data) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  ledger_->remove(found->second);
  blocks_.erase(found);
}

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

}  // namespace gradwire
