#pragma once

#include <memory>

#include "gradwire/train/memory/memory_counter.h"

namespace gradwire {

/// Has another allocator make memory, and keeps a ledger of it. In front of each piece lies what
/// the ledger knows of it, so that whoever frees it, and when, finds it: the pointer that one gets
/// is its own context, as with libtorch's allocator. It must outlive all memory that it made.
class CountingAllocator final : public c10::Allocator, public MemoryCounter {
 public:
  /// `base`'s memory is aligned to 64 bytes, as libtorch's is; it must outlive this.
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
