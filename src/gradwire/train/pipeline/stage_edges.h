#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/train/pipeline/layers.h"

namespace gradwire {

/// From an earlier stage to a later one.
using StagePair = std::pair<pipeline::Stage, pipeline::Stage>;

/// Shape and type of a tensor that passes between two stages; the first dimension is the samples.
struct BoundaryShape {
  std::vector<std::int64_t> sizes;  ///< Sizes of one sample.
  torch::ScalarType type = torch::kFloat32;

  torch::Tensor empty(std::int64_t samples) const;
};

/// By edge: the shapes of its values, in the order of StageEdge::values.
using EdgeShapes = std::map<StagePair, std::vector<BoundaryShape>>;

/// The values that pass from one stage to a later one, ascending.
struct StageEdge {
  StagePair stages;
  std::vector<StageValue> values;
};

/// The values that pass between stages: the output of a stage to the next one, and the values of
/// skip connections from the stage of their source to that of their target, without a stop between.
class StageEdges {
 public:
  /// One stage.
  StageEdges() = default;
  /// `cut`: number of layers of each stage.
  StageEdges(const Layers& layers, const std::vector<std::size_t>& cut);

  /// In ascending order.
  std::vector<StageEdge> into(pipeline::Stage stage) const;
  std::vector<StageEdge> out_of(pipeline::Stage stage) const;
  /// The values that a stage sends, that of the last target first: one process adds the gradients
  /// of a tensor with several uses in this order. The last stage returns kPassing.
  std::vector<StageValue> outputs_of(pipeline::Stage stage) const;
  /// Edges that skip a stage.
  std::vector<pipeline::Edge> skips() const;

 private:
  std::vector<StageEdge> edges_;
  std::vector<std::size_t> targets_;  ///< By skip connection: the layer that takes it.
};

/// One tensor as it is, several as one of one dimension.
torch::Tensor packed(const std::vector<torch::Tensor>& tensors);

/// The reverse: views of `tensor`.
std::vector<torch::Tensor> unpacked(const torch::Tensor& tensor,
                                    const std::vector<BoundaryShape>& shapes, std::int64_t samples);

/// Returns memory for the packed() tensors of `samples` samples.
torch::Tensor empty_packed(const std::vector<BoundaryShape>& shapes, std::int64_t samples);

}  // namespace gradwire
