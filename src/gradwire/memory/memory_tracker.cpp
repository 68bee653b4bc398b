#include "gradwire/memory/memory_tracker.h"

#include <atomic>
#include <utility>

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "gradwire/base/refuse.h"
#include "gradwire/memory/counting_allocator.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/reported_memory.h"
#include "gradwire/torch/releases.h"

namespace gradwire {
namespace {

constexpr std::string_view kName = "GRADWIRE_MEMORY";
const c10::DebugInfoKind kKind = own_debug_info(&kName);

// At most one, as libtorch has one allocator per process. Null: not counting.
std::atomic<MemoryCounter*> installed = nullptr;
std::atomic<std::uint32_t> last_scope = 0;

/// libtorch propagates it between threads.
struct LabelInfo final : c10::DebugInfoBase {
  explicit LabelInfo(MemoryLabel l) : label(l) {}
  MemoryLabel label;
};

MemoryCounter* counting() {
  return installed.load(std::memory_order_acquire);
}

}  // namespace

MemoryLabel current_memory_label() {
  const auto* info = c10::ThreadLocalDebugInfo::get(kKind);
  return info == nullptr ? MemoryLabel{} : static_cast<const LabelInfo*>(info)->label;
}

MemoryTracker::MemoryTracker(const Clock& clock, c10::DeviceType device)
    : ledger_(std::make_shared<MemoryLedger>(clock)) {
  if (counting() != nullptr) {
    refuse("MemoryTracker: one exists already; libtorch has one allocator per process");
  }
  device == c10::DeviceType::CPU ? count_cpu() : count_reports(device);
}

void MemoryTracker::count_cpu() {
  before_ = c10::GetCPUAllocator();
  // Never freed: memory that it allocated may be in use until the process ends.
  auto* allocator = std::make_unique<CountingAllocator>(*before_, ledger_).release();
  c10::SetCPUAllocator(allocator);
  installed.store(allocator, std::memory_order_release);
}

void MemoryTracker::count_reports(c10::DeviceType device) {
  auto reported = std::make_shared<ReportedMemory>(device, ledger_);
  auto* counter = reported.get();
  reports_.emplace(c10::DebugInfoKind::PROFILER_STATE, std::move(reported));
  installed.store(counter, std::memory_order_release);
}

MemoryTracker::~MemoryTracker() {
  installed.store(nullptr, std::memory_order_release);
  if (before_ != nullptr) c10::SetCPUAllocator(before_);
  ledger_->stop_sampling();
}

MemoryScope::MemoryScope(MemoryCategory category) {
  if (counting() == nullptr) return;
  guard_.emplace(kKind, std::make_shared<LabelInfo>(MemoryLabel{.category = category}));
}

KeptMemoryScope::KeptMemoryScope(MemoryCategory kept, MemoryCategory meanwhile) : kept_(kept) {
  const auto* counter = counting();
  if (counter == nullptr) return;
  ledger_ = counter->ledger();
  scope_ = 1 + last_scope.fetch_add(1, std::memory_order_relaxed);
  from_ = ledger_->next_serial();
  guard_.emplace(kKind,
                 std::make_shared<LabelInfo>(MemoryLabel{.category = meanwhile, .scope = scope_}));
}

KeptMemoryScope::~KeptMemoryScope() {
  if (ledger_) ledger_->relabel_scope(scope_, from_, kept_);
}

void label_memory(const torch::Tensor& tensor, MemoryCategory category) {
  auto* counter = counting();
  if (counter == nullptr || !tensor.defined() || !tensor.has_storage()) return;
  // Unchecked access, as Zero may have released the memory; it is counted again when Zero allocates
  // it.
  const auto& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data) counter->relabel(data, category);
}

ParameterLabels::ParameterLabels(const std::vector<torch::Tensor>& parameters) {
  if (counting() == nullptr) return;
  for (const auto& parameter : parameters) {
    label_memory(parameter, MemoryCategory::parameters);
    if (!parameter.requires_grad()) continue;
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    auto hook = [parameter](const auto& outputs, const auto&) {
      label_memory(parameter.grad(), MemoryCategory::gradients);
      return outputs;
    };
    const auto key = accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(hook)));
    hooks_.push_back({std::move(accumulator), key});
  }
}

ParameterLabels::~ParameterLabels() {
  for (const auto& [accumulator, hook] : hooks_) accumulator->del_post_hook(hook);
}

}  // namespace gradwire
