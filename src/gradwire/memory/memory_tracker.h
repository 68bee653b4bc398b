#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/trace/memory_timeline.h"

namespace gradwire {

class MemoryLedger;

/// Counts the memory of all tensors that this process allocates during its lifetime, on the CPU or
/// on accelerators of one type. MemoryScope sets the category; the default is `other`. At most one
/// per process. Tensors may outlive it; tensors allocated before it are not counted.
///
/// On the CPU it is exact: it wraps libtorch's allocator, so it sees blocks freed on other threads
/// and storages that are reassigned. It costs 64 bytes and a lock per allocation. Construct and
/// destroy it while no other thread uses libtorch (c10::SetCPUAllocator is not thread-safe). Memory
/// from other allocators is not counted: a communicator's scratch memory, oneDNN's, mapped files.
///
/// On accelerators it uses the events that allocators report to libtorch's profilers
/// (ReportedMemory). It receives them on the thread that constructs it, where it must be destroyed,
/// and on threads that inherit this thread's state: autograd's, and those that copy tensors to and
/// from the network. It is incompatible with libtorch's own profiler on that thread.
class MemoryTracker {
 public:
  /// `clock` must outlive it. Throws Exception(invalid_argument) if one exists already.
  explicit MemoryTracker(const Clock& clock, c10::DeviceType device = c10::DeviceType::CPU);
  ~MemoryTracker();
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  MemoryLedger& ledger() { return *ledger_; }
  const MemoryLedger& ledger() const { return *ledger_; }

 private:
  void count_cpu();
  void count_reports(c10::DeviceType device);

  std::shared_ptr<MemoryLedger> ledger_;
  c10::Allocator* before_ = nullptr;            ///< The previous CPU allocator; null: not replaced.
  std::optional<c10::DebugInfoGuard> reports_;  ///< Nullopt: not listening to reports.
};

/// Counts memory that this thread allocates during its lifetime as `category`; also applies to
/// autograd's threads in a backward started here. The innermost scope applies. No effect (one
/// atomic read) without a tracker.
class [[nodiscard]] MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);

 private:
  std::optional<c10::DebugInfoGuard> guard_;
};

/// Counts allocations during its lifetime as `meanwhile`; at its end, those still in use become
/// `kept`. For an optimizer step, which allocates temporaries, and in the first step its states.
class [[nodiscard]] KeptMemoryScope {
 public:
  explicit KeptMemoryScope(MemoryCategory kept, MemoryCategory meanwhile = MemoryCategory::other);
  ~KeptMemoryScope();
  KeptMemoryScope(const KeptMemoryScope&) = delete;
  KeptMemoryScope& operator=(const KeptMemoryScope&) = delete;

 private:
  std::shared_ptr<MemoryLedger> ledger_;
  MemoryCategory kept_;
  std::uint32_t scope_ = 0;
  std::uint64_t from_ = 0;
  std::optional<c10::DebugInfoGuard> guard_;
};

/// Moves the whole storage of this tensor to `category`. No effect on memory that is not counted.
void label_memory(const torch::Tensor& tensor, MemoryCategory category);

/// During its lifetime, counts each parameter's memory as parameters, and its gradient's as
/// gradients once a backward has produced it. No effect without a tracker.
class ParameterLabels {
 public:
  explicit ParameterLabels(const std::vector<torch::Tensor>& parameters);
  ~ParameterLabels();
  ParameterLabels(const ParameterLabels&) = delete;
  ParameterLabels& operator=(const ParameterLabels&) = delete;

 private:
  struct Hook {
    /// Kept alive here: the graph holds weak references.
    decltype(torch::autograd::Edge::function) accumulator;
    std::uintptr_t hook;
  };
  std::vector<Hook> hooks_;
};

}  // namespace gradwire
