#include "gradwire/recipe/run_inside.h"

#include "gradwire/topology/machine.h"
#include "gradwire/torch/hybrid_process_group.h"

namespace gradwire::recipe {

ProcessGroup group_with_inside(const TrainConfig& config, const ProcessGroup& group) {
  if (config.inside.empty() || group->getSize() == 1) return group;
  const HostGrid grid = host_grid(*communicator_of(*group), topology::machine_identity());
  return hybrid_group(*group, grid);
}

std::string inside_text(const TrainConfig& config) {
  if (config.inside.empty()) return "";
  return "inside a host: gradwire's own; hosts exchange the bytes of one rank each\n";
}

}  // namespace gradwire::recipe
