#include "gradwire/recipe/run_inside.h"

#include "gradwire/torch/hybrid_group.h"

namespace gradwire::recipe {

ProcessGroup group_with_inside(const TrainConfig& config, const ProcessGroup& group) {
  if (config.inside.empty() || group->getSize() == 1) return group;
  return hybrid_group(*group, host_grid_of(*group));
}

std::string inside_text(const TrainConfig& config) {
  if (config.inside.empty()) return "";
  return "inside a host: gradwire's own; hosts exchange the bytes of one rank each\n";
}

}  // namespace gradwire::recipe
