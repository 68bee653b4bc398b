#pragma once

#include <string>

#include "gradwire/recipe/tensor_plan.h"
#include "gradwire/train/group.h"
#include "gradwire/train/parallel/window.h"

namespace gradwire::recipe {

/// The ranks over which the layers of a model are divided.
struct LayerGroups {
  ProcessGroup tensor;  ///< Null: not divided.
  TensorPlan plan;
  ProcessGroup spatial;  ///< Null: not divided.
  SpatialParts parts;    ///< Of the images, over `spatial`.

  /// The ranks over which that layer is divided, of divisible_layers(); null: it is not.
  ProcessGroup of(const std::string& layer) const {
    return plan.divides(layer) ? tensor : ProcessGroup();
  }
};

}  // namespace gradwire::recipe
