#pragma once

#include <string>

namespace gradwire {

/// Number of ranks along each axis of a ParallelMesh.
struct MeshDegrees {
  int data = 0;      ///< Replicas of the model; 0: as many as the other degrees leave ranks for.
  int pipeline = 1;  ///< Ranks that share the layers.
  int tensor = 1;    ///< Ranks that share each layer's weights.
  int spatial = 1;   ///< Ranks that share each sample's height and width.
};

/// "pipeline 4 x data 2"; axes of one rank are left out.
std::string text_of(const MeshDegrees& degrees);

/// Returns the degrees with `data` set. Throws Exception(invalid_argument) if their product is not
/// `ranks`.
MeshDegrees complete_degrees(MeshDegrees degrees, int ranks);

}  // namespace gradwire
