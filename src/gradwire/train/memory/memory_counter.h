#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>

#include "gradwire/train/memory/memory_ledger.h"

namespace gradwire {

/// What keeps the ledger of one kind of memory. Thread-safe.
class MemoryCounter {
 public:
  virtual ~MemoryCounter() = default;

  virtual const std::shared_ptr<MemoryLedger>& ledger() const = 0;
  /// Counts what `data` points to as `category`, if it is of the memory that this counts.
  virtual void relabel(const c10::DataPtr& data, MemoryCategory category) = 0;
};

/// The category of what is made on this thread now, and the scope that said so.
struct MemoryLabel {
  MemoryCategory category = MemoryCategory::other;
  std::uint32_t scope = 0;
};
MemoryLabel current_memory_label();

}  // namespace gradwire
