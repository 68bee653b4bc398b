#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include "gradwire/train/memory/memory_ledger.h"

namespace gradwire {

/// Counts, while it lives, the memory of all tensors of this process that are made meanwhile, on
/// the CPU or on accelerators of one kind. What a tensor's memory is for is said by MemoryScope,
/// and otherwise `other`. One at a time in a process. Tensors may outlive it; those made before are
/// not counted.
///
/// On the CPU it is exact: it stands before libtorch's allocator, so it sees what is freed on other
/// threads and storages that get other memory. It costs 64 bytes and a lock for each allocation.
/// Make it and destroy it while no other thread uses libtorch (c10::SetCPUAllocator is not
/// thread-safe). Memory that does not come from libtorch's allocator is not counted: a
/// communicator's scratch memory, oneDNN's, mapped files.
///
/// On accelerators it hears what their allocators tell libtorch's profilers (ReportedMemory), on
/// the thread that makes it, where it must be destroyed, and on those to which that thread's state
/// is handed: autograd's, and those that bring tensors to and from the network. Not while a
/// profiler of libtorch's own runs there.
class MemoryTracker {
 public:
  /// `clock` must outlive it. Throws Exception(invalid_argument) if there is another.
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
  c10::Allocator* before_ = nullptr;            ///< The CPU's; null: it was not replaced.
  std::optional<c10::DebugInfoGuard> reports_;  ///< Nothing: nobody listens to them.
};

/// While it lives, memory that this thread makes is counted as `category`, and so is that which
/// autograd's threads make for a backward begun here. Innermost counts. Does nothing (a relaxed
/// read of an atomic) if nobody counts.
class [[nodiscard]] MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);

 private:
  std::optional<c10::DebugInfoGuard> guard_;
};

/// What is made in it counts as `meanwhile`, and what of it is still in use at its end as `kept`
/// from then on: an optimiser's step makes temporaries, and at the first one its states.
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

/// The memory of this tensor, all of its storage, counts as `category` from now on. Does nothing to
/// memory that is not counted.
void label_memory(const torch::Tensor& tensor, MemoryCategory category);

/// Counts each parameter's memory as parameters, and its gradient's as gradients from the moment at
/// which a backward has made it, while this lives. Does nothing if nobody counts.
class ParameterLabels {
 public:
  explicit ParameterLabels(const std::vector<torch::Tensor>& parameters);
  ~ParameterLabels();
  ParameterLabels(const ParameterLabels&) = delete;
  ParameterLabels& operator=(const ParameterLabels&) = delete;

 private:
  struct Hook {
    c10::intrusive_ptr<torch::autograd::Node> accumulator;  ///< The graph holds it weakly.
    std::uintptr_t hook;
  };
  std::vector<Hook> hooks_;
};

}  // namespace gradwire
