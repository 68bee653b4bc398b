#pragma once

#include <memory>

#include <c10/core/Allocator.h>

#include "gradwire/train/memory/memory_ledger.h"

namespace gradwire {

/// Has another allocator make memory, and keeps a ledger of it. In front of each piece lies what
/// the ledger knows of it, so that whoever frees it, and when, finds it: the pointer that one gets
/// is its own context, as with libtorch's allocator. It must outlive all memory that it made.
class CountingAllocator final : public c10::Allocator {
 public:
  /// `base`'s memory is aligned to 64 bytes, as libtorch's is; it must outlive this.
  CountingAllocator(c10::Allocator& base, std::shared_ptr<MemoryLedger> ledger);

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  const std::shared_ptr<MemoryLedger>& ledger() const { return ledger_; }

 private:
  c10::Allocator& base_;
  std::shared_ptr<MemoryLedger> ledger_;
};

/// The category of what is made on this thread now, and the scope that said so.
struct MemoryLabel {
  MemoryCategory category = MemoryCategory::other;
  std::uint32_t scope = 0;
};
MemoryLabel current_memory_label();

/// Counts what `data` points to as `category`, if a CountingAllocator made it.
void relabel_memory(const c10::DataPtr& data, MemoryCategory category);

}  // namespace gradwire
