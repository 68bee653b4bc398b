#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "gradwire/train/memory/memory_counter.h"

namespace gradwire {

/// Keeps the ledger of an accelerator's memory, which does not come from an allocator that can be
/// replaced: of what allocators tell libtorch's profilers, each piece in the size that they give
/// it. They tell the thread that makes or frees it, if it has this as its PROFILER_STATE; a piece
/// that a thread without frees is counted until its place is given out again.
class ReportedMemory final : public c10::MemoryReportingInfoBase, public MemoryCounter {
 public:
  ReportedMemory(c10::DeviceType device, std::shared_ptr<MemoryLedger> ledger)
      : device_(device), ledger_(std::move(ledger)) {}
  ~ReportedMemory() override;

  void reportMemoryUsage(void* data, std::int64_t bytes, std::size_t total_allocated,
                         std::size_t total_reserved, c10::Device device) override;
  bool memoryProfilingEnabled() const override { return true; }

  const std::shared_ptr<MemoryLedger>& ledger() const override { return ledger_; }
  void relabel(const c10::DataPtr& data, MemoryCategory category) override;

 private:
  void forget(void* data);

  c10::DeviceType device_;
  std::shared_ptr<MemoryLedger> ledger_;
  std::mutex mutex_;
  std::unordered_map<void*, MemoryBlock> blocks_;  ///< The ledger points into it.
};

}  // namespace gradwire
