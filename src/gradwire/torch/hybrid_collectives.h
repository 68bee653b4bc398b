#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gradwire/base/fork.h"
#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/hybrid_group.h"
#include "gradwire/torch/operations_in_flight.h"
#include "gradwire/torch/thread_work.h"

namespace gradwire {

/// Collectives in two levels: the ranks of a host reduce, each sends its part to the ranks at its
/// place on the other hosts, and the host gathers the parts. Between hosts there are the bytes of
/// one rank a host (hierarchical all-reduce: Jia et al., arXiv:1807.11205, section 4.3; with
/// reduce-scatter and all-gather inside as in Mikami et al., arXiv:1811.05233).
///
/// Each rank must start the same collectives in the same order. A thread starts each stage, with a
/// stream of its own on an accelerator, which begins after what the caller's stream has queued. So
/// one collective reduces while another is between hosts and a third is gathered. Thread-safe.
class HybridCollectives {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  /// Blocks until the result is available to the current stream, or throws. Called once.
  using Wait = std::function<void()>;
  /// Starts the operation between hosts, on contiguous 1-D tensors. Must not block.
  using Between = std::function<Wait(const at::Tensor& input, const at::Tensor& output)>;

  /// How elements are reduced inside; `mean`: the sum is divided by the ranks of the host.
  struct Reduction {
    c10d::ReduceOp op = c10d::ReduceOp::SUM;
    bool mean = false;
    std::chrono::milliseconds timeout{};  ///< 0: the backends' own.
  };

  /// `on_failure` is called with the reason when this rank's part of a collective fails: it fails
  /// those of other ranks.
  HybridCollectives(HostGrid grid, InsideBackends inside,
                    std::function<void(const std::string& why)> on_failure);
  ~HybridCollectives() { close(); }

  const HostGrid& grid() const { return grid_; }
  /// Elements of a rank's part in all_reduce() of `count` elements.
  std::int64_t part_of(std::int64_t count) const;

  // Tensors may have any strides. `token` is released on completion. Throw
  // Exception(invalid_argument) in a forked child.

  /// `data` = its reduction, in segments of about `segment_bytes`. `between` gets this rank's part
  /// as input and output.
  WorkPointer all_reduce(const at::Tensor& data, const Reduction& reduction, const Between& between,
                         std::size_t segment_bytes = std::numeric_limits<std::size_t>::max(),
                         OperationsInFlight::Token token = {});
  /// `shard` = this rank's part of the reduction of `data`, in the order of ranks. `between` gets
  /// the parts of the ranks at this place, and `shard`.
  WorkPointer reduce_scatter(const at::Tensor& data, const at::Tensor& shard,
                             const Reduction& reduction, const Between& between,
                             OperationsInFlight::Token token = {});
  /// `data` = the shards, in the order of ranks. `between` gets `shard`, and memory for those of
  /// the ranks at this place.
  WorkPointer all_gather(const at::Tensor& shard, const at::Tensor& data, const Between& between,
                         std::chrono::milliseconds timeout = {},
                         OperationsInFlight::Token token = {});

  /// Makes the current stream of each device wait for the results of completed collectives.
  void synchronize();
  /// Fails the calls inside this host. Those of a backend that cannot abort are not waited for any
  /// more.
  void abort();
  /// Returns true if the backends inside have calls that have not ended.
  bool has_calls() const;
  /// Returns when all collectives, and the callbacks of their futures, have run.
  void close();

 private:
  static constexpr std::size_t kStages = 3;
  using Start = std::function<Wait()>;

  struct Part {
    std::array<Start, kStages> stages;  ///< Inside, between, inside; may be empty.
    std::vector<at::Tensor> tensors;    ///< Those that the stages use.
  };
  struct Operation;
  struct CallsInside;
  using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;
  using Streams = std::vector<c10::Stream>;  ///< One for each thread; none on the CPU.

  FuturePointer end_of(const WorkPointer& work) const;
  Wait wait_of(WorkPointer work) const;
  Part reduced_part(const at::Tensor& whole, const at::Tensor& part, const at::Tensor& result,
                    const Reduction& reduction, const Between& between);
  Part all_reduced_part(const at::Tensor& data, const Reduction& reduction, const Between& between);
  Wait reduce_inside(const at::Tensor& data, const at::Tensor& part, const Reduction& reduction);
  Wait gather_inside(const at::Tensor& part, const at::Tensor& data,
                     std::chrono::milliseconds timeout);
  WorkPointer run(c10d::OpType type, std::vector<Part> parts, const at::Tensor& result,
                  const at::Tensor& dense, OperationsInFlight::Token token);
  void run_stage(const std::shared_ptr<Operation>& operation, const std::shared_ptr<Part>& part,
                 std::size_t stage, const Wait& before);
  void enter();
  void end_part(Operation& operation, Part& part);
  Streams streams_of(at::Device device);
  at::Tensor by_place(at::Device device);

  const HostGrid grid_;
  const InsideBackends inside_;
  const std::function<void(const std::string&)> on_failure_;
  const ForkGuard fork_;
  const std::shared_ptr<CallsInside> calls_;  ///< Null if the backend is gradwire's, which aborts.
  /// Wait for calls without futures; null after close().
  std::shared_ptr<CompletionThreads> waits_ = std::make_shared<CompletionThreads>();
  std::atomic<std::uint64_t> number_ = 0;
  std::mutex mutex_;
  std::map<c10::DeviceIndex, Streams> streams_;
  std::condition_variable left_;
  int in_flight_ = 0;
  /// Each starts one stage of a collective after the other; the last one waits for their end.
  std::array<CompletionThreads, kStages + 1> threads_{CompletionThreads(1), CompletionThreads(1),
                                                      CompletionThreads(1), CompletionThreads(1)};
  std::shared_ptr<CompletionThreads> callbacks_ = std::make_shared<CompletionThreads>();
};

/// Throws Exception(invalid_argument) for PowerSGD: the parts of ranks divide its matrices.
void refuse_codec_of_matrices(const std::string& codec);

}  // namespace gradwire
