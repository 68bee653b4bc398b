#include "gradwire/train/servers/served_units.h"

#include <utility>

namespace gradwire {

std::unique_ptr<Shards> make_served_units(ProcessGroup group, const std::string& who, int parts,
                                          const UnitPlan& plan,
                                          const std::vector<NamedTensor>& parameters) {
  auto units = std::make_unique<Shards>(
      std::move(group), who, ShardsOptions{.stage = 1, .parameters = {}, .servers = parts},
      plan.units.size());
  for (const UnitPlan::Unit& unit : plan.units) {
    std::vector<NamedTensor> members;
    for (const auto index : unit.members) members.push_back(parameters[index]);
    units->add(unit.name, members, unit.root);
  }
  units->allocate_gradients();
  return units;
}

}  // namespace gradwire
