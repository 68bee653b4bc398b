#include "gradwire/train/parallel_mesh.h"

#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/process_group.h"

namespace gradwire {

ParallelMesh::ParallelMesh(ProcessGroup world, MeshDegrees degrees) : world_(std::move(world)) {
  if (!world_) refuse("ParallelMesh needs a process group: gradwire::init() makes one");
  degrees_ = complete_degrees(degrees, world_->getSize());
  position_ = position_of(world_->getRank());
  tensor_ = make_axis(&MeshPosition::tensor, degrees_.tensor);
  spatial_ = make_axis(&MeshPosition::spatial, degrees_.spatial);
  data_ = make_axis(&MeshPosition::data, degrees_.data);
  pipeline_ = make_axis(&MeshPosition::pipeline, degrees_.pipeline);
}

ProcessGroup ParallelMesh::make_axis(int MeshPosition::*axis, int degree) const {
  if (degree == 1) return group_of_one();
  if (degree == world_->getSize()) return world_;
  std::vector<Rank> ranks;
  MeshPosition position = position_;
  for (int i = 0; i < degree; ++i) {
    position.*axis = i;
    ranks.push_back(rank_of(position));
  }
  return subgroup_of(*world_, ranks);
}

MeshPosition ParallelMesh::position_of(Rank rank) const {
  MeshPosition position;
  const auto take = [&](int degree) { return std::exchange(rank, rank / degree) % degree; };
  position.tensor = take(degrees_.tensor);
  position.spatial = take(degrees_.spatial);
  position.data = take(degrees_.data);
  position.pipeline = rank;
  return position;
}

Rank ParallelMesh::rank_of(const MeshPosition& position) const {
  const int replica = position.pipeline * degrees_.data + position.data;
  return (replica * degrees_.spatial + position.spatial) * degrees_.tensor + position.tensor;
}

std::string ParallelMesh::describe() const {
  return fmt::format("{} ranks: {}", world_->getSize(), text_of(degrees_));
}

}  // namespace gradwire
