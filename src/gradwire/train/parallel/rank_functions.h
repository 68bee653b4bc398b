#pragma once

#include <cstdint>
#include <functional>

#include <torch/torch.h>

#include "gradwire/host/group.h"

namespace gradwire {

// Autograd functions over the ranks of a group, of any c10d backend. Each is a linear map whose
// backward is its adjoint. All ranks must call the same functions, forward and backward, in the
// same order.
//
// A tensor is *replicated* if it has the same values on every rank, and every rank computes the
// same with it; its gradient then is replicated too. It is *divided* along a dimension if each rank
// has the part that part_begin() (base/box.h) gives it. Replicated results have the same bits on
// every rank. In a group of one rank all functions return their argument.

/// x is replicated; the result is used differently on each rank (another part of a weight, another
/// part of the samples). Backward sums the gradients over ranks: all-reduce.
torch::Tensor copy_to_ranks(const torch::Tensor& x, const ProcessGroup& group);

/// The sum over ranks, replicated: all-reduce. Backward passes the gradient on.
torch::Tensor sum_over_ranks(const torch::Tensor& x, const ProcessGroup& group);

/// The whole of a tensor that is divided along `dimension`, where it has `size` indices;
/// replicated: all-gather. Backward keeps the own part of the gradient.
torch::Tensor gather_over_ranks(const torch::Tensor& part, std::int64_t dimension,
                                std::int64_t size, const ProcessGroup& group);

/// The own part of a replicated tensor. Backward gathers the parts of the gradient: all-gather.
torch::Tensor scatter_over_ranks(const torch::Tensor& whole, std::int64_t dimension,
                                 const ProcessGroup& group);

/// The tensor of gather_over_ranks(), but used differently on each rank, as by columns of a linear
/// layer after a sequence-parallel part. Backward sums the gradients and keeps the own part:
/// reduce-scatter.
torch::Tensor gather_to_ranks(const torch::Tensor& part, std::int64_t dimension, std::int64_t size,
                              const ProcessGroup& group);

/// The own part of the sum over ranks: reduce-scatter. Backward gathers: all-gather.
torch::Tensor reduce_scatter_over_ranks(const torch::Tensor& x, std::int64_t dimension,
                                        const ProcessGroup& group);

/// torch::dropout of a tensor that is divided along `dimension`, where the whole has `size`
/// indices, with the mask of the unsplit model: draws the whole mask and keeps this rank's part.
/// So ranks with the same generator state drop other elements each, and have the same state
/// afterwards. No communication. Dropout of replicated tensors is torch's own, with the same state
/// on every rank.
torch::Tensor dropout_of_part(const torch::Tensor& part, double p, bool training,
                              std::int64_t dimension, std::int64_t size, const ProcessGroup& group);

/// A function from a tensor to a tensor.
using TensorMap = std::function<torch::Tensor(const torch::Tensor&)>;

/// Returns forward(x); its backward is `backward`, which must be the adjoint. Both are called
/// without gradients.
torch::Tensor linear_map(const torch::Tensor& x, const TensorMap& forward,
                         const TensorMap& backward);

/// The same collectives without autograd.
namespace collective {

/// A reduction in flight. wait() returns its result.
class Pending {
 public:
  Pending() = default;
  Pending(torch::Tensor result, c10::intrusive_ptr<c10d::Work> work)
      : result_(std::move(result)), work_(std::move(work)) {}

  torch::Tensor wait() const;

 private:
  torch::Tensor result_;
  c10::intrusive_ptr<c10d::Work> work_;  ///< Null if the result is complete.
};

/// Starts an all-reduce of a copy of x.
Pending start_sum(const torch::Tensor& x, const ProcessGroup& group);
torch::Tensor sum(const torch::Tensor& x, const ProcessGroup& group);
torch::Tensor max(const torch::Tensor& x, const ProcessGroup& group);

/// Row r of the result is x of rank r. Shapes must agree.
torch::Tensor stack(const torch::Tensor& x, const ProcessGroup& group);

/// Equal parts are one all-gather, unequal ones an all-to-all without padding.
torch::Tensor gather(const torch::Tensor& part, std::int64_t dimension, std::int64_t size,
                     const ProcessGroup& group);
/// Equal parts are one reduce-scatter; unequal ones an all-to-all, added in the order of ranks.
torch::Tensor reduce_scatter(const torch::Tensor& x, std::int64_t dimension,
                             const ProcessGroup& group);
/// Starts it; unequal parts are complete on return.
Pending start_reduce_scatter(const torch::Tensor& x, std::int64_t dimension,
                             const ProcessGroup& group);

/// This rank's part of a tensor, as a view.
torch::Tensor own_part(const torch::Tensor& whole, std::int64_t dimension,
                       const ProcessGroup& group);

}  // namespace collective

}  // namespace gradwire
