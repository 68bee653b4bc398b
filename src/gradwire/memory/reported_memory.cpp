#include "gradwire/memory/reported_memory.h"

#include "gradwire/memory/memory_ledger.h"

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

}  // namespace gradwire
