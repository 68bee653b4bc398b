#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>

#include "gradwire/train/memory/memory_ledger.h"

namespace gradwire {

/// Records one kind of memory in a ledger. Thread-safe.
class MemoryCounter {
 public:
  virtual ~MemoryCounter() = default;

  virtual const std::shared_ptr<MemoryLedger>& ledger() const = 0;
  /// Moves the block that `data` points to into `category`, if this counts it.
  virtual void relabel(const c10::DataPtr& data, MemoryCategory category) = 0;
};

/// The category of allocations on this thread, and the scope that set it.
struct MemoryLabel {
  MemoryCategory category = MemoryCategory::other;
  std::uint32_t scope = 0;
};
MemoryLabel current_memory_label();

}  // namespace gradwire
