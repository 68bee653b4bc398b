#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/under_way.h"

namespace gradwire {

/// All-reduces of sparse tensors (COO, on the CPU), as the gradients of nn.Embedding(sparse=True)
/// are: every rank gathers the others' indices and values, whose numbers may differ, and adds them
/// up by itself, in the same order and so to the same bits. What travels is what is not zero. One
/// such operation takes place after the other, on a thread of its own.
class SparseAllReduce {
 public:
  /// `group` is for these operations alone: a lane of its own.
  explicit SparseAllReduce(c10::intrusive_ptr<ProcessGroupGradwire> group);
  ~SparseAllReduce() { close(); }

  /// `tensor` becomes the coalesced SUM or AVG over all ranks, which Work::result() has too. Throws
  /// Exception(unsupported) for other reductions; ranks with tensors of different shapes are
  /// errors of the Work. `until_over` is let go of when it is complete.
  c10::intrusive_ptr<c10d::Work> run(const at::Tensor& tensor, std::uint64_t number,
                                     const c10d::AllreduceOptions& opts,
                                     UnderWay::Token until_over);

  ProcessGroupGradwire& group() { return *group_; }

  /// Returns when all have ended.
  void finish() { thread_.close(); }

  /// The same, and their callbacks have run.
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
