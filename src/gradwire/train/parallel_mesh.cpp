#include "gradwire/train/parallel_mesh.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/process_group.h"

namespace gradwire {

std::string text_of(const MeshDegrees& degrees) {
  std::vector<std::string> axes;
  const auto add = [&](const char* name, int degree) {
    if (degree != 1) axes.push_back(fmt::format("{} {}", name, degree));
  };
  add("pipeline", degrees.pipeline);
  add("data", degrees.data);
  add("spatial", degrees.spatial);
  add("tensor", degrees.tensor);
  return axes.empty() ? "data 1" : fmt::format("{}", fmt::join(axes, " x "));
}

MeshDegrees complete_degrees(MeshDegrees degrees, int ranks) {
  const bool derived = degrees.data == 0;
  for (const int degree : {degrees.pipeline, degrees.tensor, degrees.spatial, degrees.data}) {
    if (degree < 1 && !(derived && degree == 0)) refuse("mesh: a degree of {}; use 1 or more", degree);
  }
  const int others = degrees.pipeline * degrees.tensor * degrees.spatial;
  if (derived && others > 0 && ranks % others == 0) degrees.data = ranks / others;
  if (others * degrees.data != ranks) {
    refuse("mesh: {}{} needs {} ranks, but the job has {}: change the degrees or the ranks",
           text_of({.data = derived ? 1 : degrees.data,
                    .pipeline = degrees.pipeline,
                    .tensor = degrees.tensor,
                    .spatial = degrees.spatial}),
           derived ? " (x data)" : "",
           derived ? fmt::format("a multiple of {}", others)
                   : std::to_string(others * degrees.data),
           ranks);
  }
  return degrees;
}

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
