#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/torch/tensor_span.h"

namespace gradwire {

/// Stands in for arguments whose memory cannot travel as it lies: strided views, channels_last
/// tensors, lazily conjugated or negated ones, and tensors that overlap another one of the same
/// operation. They travel as contiguous copies, in row-major order on every rank whatever their
/// strides are there, and results are copied back when the operation finishes. Tensors that are
/// contiguous, sparse or not on the CPU pass as they are.
class ContiguousCopies {
 public:
  using TensorList = std::vector<at::Tensor>;

  /// What the operation only reads.
  at::Tensor read(const at::Tensor& tensor);
  TensorList read(const TensorList& tensors);

  /// What it writes, and may read. Throws Exception(invalid_argument) if several elements of a
  /// tensor share memory, as after expand().
  at::Tensor written(const at::Tensor& tensor, const ArgumentName& name);
  TensorList written(const TensorList& tensors, const ArgumentName& name);

  /// The same for tensors that an operation reduces side by side: each of them from what all had
  /// when it was called, also where they are the same or overlap.
  TensorList reduced_apart(const TensorList& tensors, const ArgumentName& name);

  /// The operation writes `one`, whose values `other`, of its size, gets too.
  void written_also(const at::Tensor& one, const at::Tensor& other);

  /// Returns true if any argument was replaced.
  bool any() const { return replaced_; }

  /// Lets `work`, which must be new, copy the results back when it finishes, and say that they are
  /// `outputs`. Returns it.
  c10::intrusive_ptr<c10d::Work> copy_back(c10::intrusive_ptr<c10d::Work> work,
                                           const TensorList& outputs) const;

 private:
  at::Tensor replace(const at::Tensor& tensor, const ArgumentName& name);

  bool replaced_ = false;
  TensorList originals_;  ///< Of what is written.
  TensorList copies_;
};

/// Throws Exception(invalid_argument) if two of the tensors, which one operation writes, overlap.
void check_disjoint(const std::vector<at::Tensor>& tensors, const ArgumentName& name);

}  // namespace gradwire
