#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/operations_in_flight.h"
#include "gradwire/torch/process_group.h"

namespace gradwire {

/// All-reduces sparse tensors (COO, on the CPU), such as gradients of nn.Embedding(sparse=True).
/// Every rank gathers all ranks' indices and values, whose counts may differ, and sums them locally
/// in the same order, so the bits are the same on every rank. Only nonzero entries are sent.
/// Operations run one at a time, on a separate thread.
class SparseAllReduce {
 public:
  /// `group` must be reserved for these operations: a separate lane.
  explicit SparseAllReduce(c10::intrusive_ptr<ProcessGroupGradwire> group);
  ~SparseAllReduce() { close(); }

  /// Replaces `tensor` by the coalesced SUM or AVG over all ranks, also the result of the Work.
  /// Throws Exception(unsupported) for other reductions. Different shapes on different ranks are an
  /// error of the Work. `in_flight_token` is released on completion.
  c10::intrusive_ptr<c10d::Work> run(const at::Tensor& tensor, std::uint64_t number,
                                     const c10d::AllreduceOptions& opts,
                                     OperationsInFlight::Token in_flight_token);

  ProcessGroupGradwire& group() { return *group_; }

  /// Returns when all operations have ended.
  void finish() { thread_.close(); }

  /// Also waits for their callbacks.
  void close() {
    finish();
    callbacks_->close();
  }

 private:
  c10::intrusive_ptr<ProcessGroupGradwire> group_;
  CompletionThreads thread_{1};
  std::shared_ptr<CompletionThreads> callbacks_ = std::make_shared<CompletionThreads>();
};

}  // namespace gradwire
