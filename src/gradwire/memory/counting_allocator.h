#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>

#include "gradwire/memory/memory_ledger.h"

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

/// Allocates from another allocator and records each block in a ledger. The ledger's record
/// precedes each block in memory, so that it is found on any thread, whenever the block is freed.
/// As with libtorch's allocator, the data pointer is its own context. It must outlive all memory
/// that it allocated.
class CountingAllocator final : public c10::Allocator, public MemoryCounter {
 public:
  /// `base` must align memory to 64 bytes, as libtorch's does, and must outlive this.
  CountingAllocator(c10::Allocator& base, std::shared_ptr<MemoryLedger> ledger);

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  const std::shared_ptr<MemoryLedger>& ledger() const override { return ledger_; }
  void relabel(const c10::DataPtr& data, MemoryCategory category) override;

 private:
  c10::Allocator& base_;
  std::shared_ptr<MemoryLedger> ledger_;
};

}  // namespace gradwire
