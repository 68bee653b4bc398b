#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/box.h"
#include "gradwire/host/group.h"

namespace gradwire {

/// The elements of `box`, as a view. The box is in the tensor's own coordinates.
torch::Tensor view_of_box(const torch::Tensor& tensor, const Box& box);

/// Moves a tensor from one division over the ranks of a group to another. A halo exchange, a
/// gather, a change from spatial to data parallelism, and the exchange of embeddings that are
/// divided by table are all this.
///
/// Forward sends each element that a rank needs and does not have once (box_messages()). Backward
/// sends the gradients back, and adds, in the order of the ranks, where several ranks had used an
/// element. Equal parts of one dimension -> whole is an all-gather, and backward a reduce-scatter;
/// everything else one all-to-all with parts of different sizes, and nothing if all ranks have what
/// they need. All ranks must take part. Immutable; cheap to copy.
class BoxExchange {
 public:
  /// Both divisions must have one box for each rank of the group. Throws
  /// Exception(invalid_argument) as box_messages() does.
  BoxExchange(Division from, Division to, ProcessGroup group);

  /// `own`: this rank's box in `from`. Returns its box in `to`. Throws Exception(invalid_argument)
  /// if the shape is not the box's.
  torch::Tensor operator()(const torch::Tensor& own) const;

  // The same without autograd.
  torch::Tensor forward(const torch::Tensor& own) const;
  /// The adjoint.
  torch::Tensor backward(const torch::Tensor& gradient) const;

  const Division& from() const;
  const Division& to() const;
  /// Elements that this rank sends in forward, unless it is an all-gather.
  std::int64_t elements_sent() const;

 private:
  struct Plan;
  std::shared_ptr<const Plan> plan_;
};

/// A tensor of which each rank of a group has a box.
struct DividedTensor {
  torch::Tensor own;  ///< This rank's box.
  Division division;

  /// The same division with other values of the same shape: x.with(torch::relu(x.own)).
  DividedTensor with(torch::Tensor values) const { return {std::move(values), division}; }
};

/// This rank's box of a replicated tensor. `division` must be a partition. Backward gathers the
/// gradient.
DividedTensor divide(const torch::Tensor& whole, const Division& division,
                     const ProcessGroup& group);

/// Moves to another division, such as from image strips to samples.
DividedTensor redivide(const DividedTensor& x, const Division& to, const ProcessGroup& group);

/// The whole tensor, replicated. Backward keeps the own box of the gradient.
torch::Tensor undivide(const DividedTensor& x, const ProcessGroup& group);

/// Sums over the ranks with the same subset number, without a group of their own; every rank of
/// `group` must call it with a tensor of as many elements. One subset: all-reduce. Several: parts
/// are added by one rank each, in the order of ranks, and gathered, which sends the bytes of an
/// all-reduce. No autograd.
torch::Tensor subset_sum(const torch::Tensor& x, const std::function<int(int rank)>& subset_of,
                         const ProcessGroup& group);

}  // namespace gradwire
