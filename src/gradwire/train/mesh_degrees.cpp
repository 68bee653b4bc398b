#include "gradwire/train/mesh_degrees.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"

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
    if (degree < 1 && !(derived && degree == 0))
      refuse("mesh: a degree of {}; use 1 or more", degree);
  }
  const int others = degrees.pipeline * degrees.tensor * degrees.spatial;
  if (derived && others > 0 && ranks % others == 0) degrees.data = ranks / others;
  if (others * degrees.data != ranks) {
    refuse(
        "mesh: {}{} needs {} ranks, but the job has {}: change the degrees or the ranks",
        text_of({.data = derived ? 1 : degrees.data,
                 .pipeline = degrees.pipeline,
                 .tensor = degrees.tensor,
                 .spatial = degrees.spatial}),
        derived ? " (x data)" : "",
        derived ? fmt::format("a multiple of {}", others) : std::to_string(others * degrees.data),
        ranks);
  }
  return degrees;
}

}  // namespace gradwire
