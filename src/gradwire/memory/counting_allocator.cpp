#include "gradwire/memory/counting_allocator.h"

#include <cstring>
#include <utility>

#include "gradwire/memory/memory_ledger.h"

namespace gradwire {
namespace {

/// Precedes each block; as large as the alignment that libtorch guarantees.
struct alignas(64) Header {
  MemoryBlock block;
  MemoryLedger* ledger = nullptr;
  c10::DeleterFnPtr deleter = nullptr;  ///< The base allocator's.
};
static_assert(sizeof(Header) == 64);

Header* header_of(void* data) {
  return reinterpret_cast<Header*>(static_cast<std::byte*>(data) - sizeof(Header));
}

void release(void* data) {
  if (data == nullptr) return;
  auto* header = header_of(data);
  header->ledger->remove(header->block);
  header->deleter(header);
}

}  // namespace

CountingAllocator::CountingAllocator(c10::Allocator& base, std::shared_ptr<MemoryLedger> ledger)
    : base_(base), ledger_(std::move(ledger)) {}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
  auto memory = base_.allocate(bytes + sizeof(Header));
  TORCH_INTERNAL_ASSERT(memory.get() == memory.get_context());
  auto* header =
      std::construct_at(static_cast<Header*>(memory.get()),
                        Header{.ledger = ledger_.get(), .deleter = memory.get_deleter()});
  const auto device = memory.device();
  memory.release_context();
  const auto [category, scope] = current_memory_label();
  ledger_->add(header->block, static_cast<std::int64_t>(bytes), category, scope);
  void* data = header + 1;
  return {data, data, &release, device};
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const {
  return &release;
}

void CountingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}

void CountingAllocator::relabel(const c10::DataPtr& data, MemoryCategory category) {
  if (data.get_deleter() != &release) return;
  auto* header = header_of(data.get_context());
  header->ledger->relabel(header->block, category);
}

}  // namespace gradwire
