#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// How a simulated time comes about.
enum class SimulationMethod : std::uint8_t {
  events,       ///< All ranks, segment by segment.
  one_for_all,  ///< One host, segment by segment: the others do the same at the same time.
  levels,       ///< Fewer hosts, all ranks, and what each doubling of them takes longer.
  ring_path,    ///< A ring's longest chain of segments that wait for each other.
  bound,        ///< One host or levels as above, and what the most loaded link takes longer.
};

std::string_view name_of(SimulationMethod method);

struct SimulatedCollective {
  double seconds = 0;
  /// Of them, what the most loaded port is busy: another collective can use the rest.
  double port_seconds = 0;
  SimulationMethod method = SimulationMethod::events;
};

/// How long collectives with one of the catalogue's algorithms take. All ranks begin at the same
/// time. A question about 16,384 ranks takes less than a second.
///
/// Small schedules are played through rank by rank; where all hosts do the same, one is, exactly;
/// trees of many hosts are as those of fewer, and take longer by as much with each doubling; rings
/// over unequal links are a formula; and over links that differ anything else takes the time that
/// it does over equal ones plus what the most loaded link takes longer than an equal one would.
/// docs/plan.md has the bounds.
class CollectiveSimulation {
 public:
  /// `method`: the one to take, for comparisons; invalid_argument where it does not apply. Throws
  /// Exception(invalid_argument): an unknown algorithm; one that makes its schedule from unequal
  /// links (uneven, spanning_trees) or hosts of several ranks (hierarchical, leaders) for more of
  /// them than can be looked at; more messages than can be simulated.
  CollectiveSimulation(Collective collective, const std::string& algorithm, const Fabric& fabric,
                       const CostOptions& costs = {}, std::optional<SimulationMethod> method = {});
  ~CollectiveSimulation();
  CollectiveSimulation(CollectiveSimulation&&) noexcept;

  /// On `bytes` bytes of all chunks together.
  SimulatedCollective of(double bytes) const;

  /// Whether more messages and steps than that would be simulated: time is in proportion.
  static bool takes_long(Collective collective, const std::string& algorithm, const Fabric& fabric,
                         double most_ops);

 private:
  class Method;
  std::unique_ptr<Method> method_;
};

/// The same for one size.
SimulatedCollective simulate_collective(Collective collective, const std::string& algorithm,
                                        const Fabric& fabric, double bytes,
                                        const CostOptions& costs = {},
                                        std::optional<SimulationMethod> method = {});

}  // namespace gradwire
