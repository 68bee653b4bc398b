#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gradwire/host/group.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/host/unit_optimizer.h"
#include "gradwire/train/zero/shards.h"
#include "gradwire/train/zero/unit_plan.h"

namespace gradwire {

/// Makes the units of a worker: whole, with gradients, and divisible into `parts` parts, which
/// servers have. `who` appears in messages.
std::unique_ptr<Shards> make_served_units(ProcessGroup group, const std::string& who, int parts,
                                          const UnitPlan& plan,
                                          const std::vector<NamedTensor>& parameters);

/// Returns the names of the parameters that `units` name (ServersOptions::units). Throws
/// Exception(invalid_argument) for a unit without parameters, with the names that there are.
std::set<std::string> parameters_of_units(const std::vector<NamedTensor>& parameters,
                                          const std::vector<std::string>& units);

/// The optimizer of a worker's units, which steps on the servers.
class SteppedByServers final : public UnitOptimizer {
 public:
  bool step(std::size_t /*unit*/, double /*factor*/) override { return true; }
};

}  // namespace gradwire
