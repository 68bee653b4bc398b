#pragma once

#include <map>
#include <set>
#include <string>

#include <torch/torch.h>

#include "gradwire/base/box_range.h"
#include "gradwire/host/group.h"

namespace gradwire {

/// Which part of a parameter (or buffer) of the unsplit model a rank has.
struct ParameterBox {
  Shape shape;      ///< Shape of the whole parameter.
  TensorPart part;  ///< Part that this rank has.
  /// True if a lower rank of the layer's group has the same box. Sums over the elements of a model
  /// (norms) and checkpoints take each box once: from the rank where this is false.
  bool replica = false;

  bool operator==(const ParameterBox&) const = default;
};

/// Base of layers whose parameters are split over the ranks of a group. Null: this rank alone.
/// Parameters that a layer does not split are replicated: equal on every rank of its group, as are
/// their gradients.
class ParallelModule : public torch::nn::Module {
 public:
  explicit ParallelModule(ProcessGroup group) : group_(std::move(group)) {}

  const ProcessGroup& group() const { return group_; }
  /// Boxes of the split parameters, by their name in this layer ("weight").
  const std::map<std::string, ParameterBox>& own_boxes() const { return boxes_; }

 protected:
  /// Registers a copy of this rank's box of `whole` as a parameter. `division` may be of another
  /// shape with as many elements (TensorPart::view); `shape` is that of the parameter, by default
  /// the box's.
  torch::Tensor register_part(const std::string& name, const torch::Tensor& whole,
                              const Division& division, const Shape& shape = {});
  /// Records that this rank has all of a parameter that is registered on no other rank.
  void record_sole_owner(const std::string& name, const torch::Tensor& whole);

  int rank() const { return group_ ? group_->getRank() : 0; }
  int ranks() const { return group_ ? group_->getSize() : 1; }

 private:
  ProcessGroup group_;
  std::map<std::string, ParameterBox> boxes_;
};

/// The boxes of all split parameters of a model, by full name ("block0.up.weight"); none in groups
/// of one rank. All other
/// parameters are replicated in the groups of its parallel layers.
std::map<std::string, ParameterBox> parameter_boxes(const torch::nn::Module& module);

/// Names of the split parameters. They share no bucket with others: sizes of parts differ between
/// ranks, and the order of additions in a reduction depends on the place in a bucket, so that
/// replicated parameters would get other bits on each rank.
std::set<std::string> divided_parameters(const torch::nn::Module& module);

/// Number of parameter elements of the unsplit module.
double whole_elements(const torch::nn::Module& module);

/// Returns count / ranks. Throws Exception(invalid_argument), which names `what` ("attention
/// heads"), unless it divides. For what cannot be split unevenly: heads, channels.
std::int64_t equal_part(std::string_view what, std::int64_t count, const ProcessGroup& group);

}  // namespace gradwire
