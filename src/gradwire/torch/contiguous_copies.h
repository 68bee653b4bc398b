#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/torch/tensor_span.h"

namespace gradwire {

/// Replaces tensors that cannot be sent in place by contiguous copies: strided views, channels_last
/// tensors, lazily conjugated or negated ones, and tensors that overlap another one of the same
/// operation. Copies are row-major on every rank, whatever the strides. Results are copied back
/// when the operation finishes. Tensors that are contiguous, sparse or not on the CPU are passed
/// through.
class ContiguousCopies {
 public:
  using TensorList = std::vector<at::Tensor>;

  /// Returns the tensor, or a copy, for an argument that the operation only reads.
  at::Tensor read(const at::Tensor& tensor);
  TensorList read(const TensorList& tensors);

  /// The same for an argument that the operation writes, and may read. Throws
  /// Exception(invalid_argument) if several elements of a tensor share memory, as after expand().
  at::Tensor written(const at::Tensor& tensor, const ArgumentName& name);
  TensorList written(const TensorList& tensors, const ArgumentName& name);

  /// The same for tensors that an operation reduces independently: each is reduced from its initial
  /// values, even if tensors are the same or overlap.
  TensorList written_separately(const TensorList& tensors, const ArgumentName& name);

  /// Also copies the result in `one` to `other`, of the same size.
  void also_copy_to(const at::Tensor& one, const at::Tensor& other);

  /// Returns true if any argument was replaced.
  bool any() const { return replaced_; }

  /// Makes `work`, which must be new, copy the results back when it finishes, and report `outputs`
  /// as its results. Returns it.
  c10::intrusive_ptr<c10d::Work> copy_back(c10::intrusive_ptr<c10d::Work> work,
                                           const TensorList& outputs) const;

 private:
  at::Tensor replace(const at::Tensor& tensor, const ArgumentName& name);

  bool replaced_ = false;
  TensorList originals_;  ///< Originals of written arguments.
  TensorList copies_;
};

/// Throws Exception(invalid_argument) if two of the tensors overlap, which one operation writes.
void check_disjoint(const std::vector<at::Tensor>& tensors, const ArgumentName& name);

}  // namespace gradwire
