#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>

#include "gradwire/memory/counting_allocator.h"
#include "gradwire/memory/memory_ledger.h"

namespace gradwire {

/// Ledger of an accelerator's memory, whose allocator cannot be replaced. It uses the events that
/// allocators report to libtorch's profilers, with the block sizes they report. Events arrive on
/// the thread that allocates or frees, if this is its PROFILER_STATE. A block freed on another
/// thread is counted until its address is allocated again.
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
  std::unordered_map<void*, MemoryBlock> blocks_;  ///< The ledger holds pointers into it.
};

}  // namespace gradwire
