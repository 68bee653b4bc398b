#pragma once

#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/host/group.h"
#include "gradwire/train/mesh_degrees.h"

namespace gradwire {

/// Position of a rank along each axis.
struct MeshPosition {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
  int spatial = 0;

  bool operator==(const MeshPosition&) const = default;
};

/// The ranks of a job as a grid for hybrids of data, pipeline, tensor and spatial parallelism. Each
/// axis has a process group: the ranks that differ from this one along that axis alone. Groups are
/// views of one communicator: they share its connections.
///
///     gradwire::ParallelMesh mesh(gradwire::init(), {.data = 2, .pipeline = 4});
///     gradwire::Pipeline model(layers, {.process_group = mesh.pipeline(),
///                                       .data = {.process_group = mesh.data()}, ...});
///
/// Rank numbers vary fastest along tensor, then spatial, data and pipeline. `gradwire run` numbers
/// the ranks of a host consecutively, so the axes that exchange most bytes stay within hosts.
class ParallelMesh {
 public:
  /// Collective over `world`. Throws Exception: invalid_argument if the product of the degrees is
  /// not the number of ranks; unsupported if several axes have more than one rank and `world` is
  /// not a group of gradwire.
  explicit ParallelMesh(ProcessGroup world, MeshDegrees degrees = {});

  const ProcessGroup& world() const { return world_; }
  const ProcessGroup& data() const { return data_; }
  const ProcessGroup& pipeline() const { return pipeline_; }
  const ProcessGroup& tensor() const { return tensor_; }
  const ProcessGroup& spatial() const { return spatial_; }

  const MeshDegrees& degrees() const { return degrees_; }
  const MeshPosition& position() const { return position_; }
  MeshPosition position_of(Rank rank) const;
  Rank rank_of(const MeshPosition& position) const;

  /// Number of ranks that have the same stage and samples: tensor times spatial.
  int ranks_alike() const { return degrees_.tensor * degrees_.spatial; }

  /// "8 ranks: pipeline 4 x data 2".
  std::string describe() const;

 private:
  ProcessGroup make_axis(int MeshPosition::*axis, int degree) const;

  ProcessGroup world_;
  MeshDegrees degrees_;
  MeshPosition position_;
  ProcessGroup data_, pipeline_, tensor_, spatial_;
};

}  // namespace gradwire
