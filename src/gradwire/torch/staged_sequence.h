#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "gradwire/torch/device_staging.h"

namespace gradwire {

/// What is begun and then waited for, on an accelerator's tensors by way of pinned host memory
/// (device_staging.h): for operations of our own that are not a c10d group's. Begins one after the
/// other in the order of run(), as their copies arrive, and waits for them in that order, each on
/// a thread of its own. Thread-safe.
class StagedSequence {
 public:
  /// Returns when the outputs are there, or throws. Called once.
  using Wait = std::function<void()>;
  /// Gets contiguous host tensors of the same sizes as what run() was given. Must not wait.
  using Begin = std::function<Wait(const TensorList& inputs, const TensorList& outputs)>;

  explicit StagedSequence(Rank rank) : rank_(rank) {}

  /// `inputs` are copied to the host before, `outputs` back to the device afterwards; all are on
  /// one device, and a tensor in both lists is one in host memory too. Throws as
  /// DeviceStaging::run() does; what `begin` and its wait throw is the Work's error. `results`:
  /// what its future gives; without, nothing here has a hold on the tensors once it is over.
  c10::intrusive_ptr<StagedWork> run(c10d::OpType type, TensorList inputs, TensorList outputs,
                                     Begin begin, TensorList results = {});

  /// Returns when everything that was begun is over.
  void close();

 private:
  Rank rank_;
  std::atomic<std::uint64_t> number_ = 0;
  CompletionThreads waiter_{1};  ///< Outlives the thread that begins.
  DeviceStaging staging_;
};

}  // namespace gradwire
