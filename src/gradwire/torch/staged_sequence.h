#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "gradwire/torch/device_staging.h"

namespace gradwire {

/// Runs asynchronous operations other than c10d's on an accelerator's tensors, staged through
/// pinned host memory (device_staging.h). Operations begin in the order of run(), as their copies
/// arrive, and are waited for in that order; each of the two runs on a separate thread.
/// Thread-safe.
class StagedSequence {
 public:
  /// Blocks until the outputs are available, or throws. Called once.
  using Wait = std::function<void()>;
  /// Starts an operation on contiguous host tensors of the same sizes as run()'s. Must not block.
  using Begin = std::function<Wait(const TensorList& inputs, const TensorList& outputs)>;

  explicit StagedSequence(Rank rank) : rank_(rank) {}

  /// Copies `inputs` to the host before the operation, and `outputs` back to the device afterwards.
  /// All must be on one device; a tensor in both lists has one host copy. Throws as
  /// DeviceStaging::run() does; errors of `begin` and its wait are reported by the Work. `results`:
  /// value of the Work's future. Without it, no tensor is held after completion.
  c10::intrusive_ptr<StagedWork> run(c10d::OpType type, TensorList inputs, TensorList outputs,
                                     Begin begin, TensorList results = {});

  /// Returns when all operations have completed.
  void close();

 private:
  Rank rank_;
  std::atomic<std::uint64_t> number_ = 0;
  CompletionThreads waiter_{1};  ///< Outlives staging_'s thread, which uses it.
  DeviceStaging staging_;
};

}  // namespace gradwire
