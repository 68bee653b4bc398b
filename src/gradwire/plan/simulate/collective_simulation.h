#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/plan/simulate/simulated_ranks.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::plan {

/// Which ranks the link model simulates.
enum class SimulationMethod : std::uint8_t {
  events,       ///< All ranks.
  one_for_all,  ///< One host; the others do the same at the same time. Requires equal ports.
  fewer_hosts,  ///< Several smaller numbers of hosts, with which the time grows regularly.
};

struct SimulatedCollective : OperationTime {
  SimulationMethod method = SimulationMethod::events;
};

/// Simulates collectives with one of the catalogue's algorithms. All ranks begin at the same time.
/// 16,384 ranks take less than a second.
///
/// Few messages are simulated rank by rank. If all hosts do the same, one is simulated, which is
/// exact. Otherwise smaller numbers of hosts are simulated, and the growth continues: by levels for
/// trees and butterflies, with each doubling of the hosts; by hosts for all other algorithms.
/// docs/plan.md has the errors.
class CollectiveSimulation {
 public:
  /// `method`: forces a method, for comparisons. Throws Exception(invalid_argument): a method that
  /// does not apply; an unknown algorithm; too many hosts for an algorithm that tries shares or
  /// trees on each link (uneven, spanning_trees); too many messages.
  CollectiveSimulation(schedule::Collective collective, const std::string& algorithm,
                       const Fabric& fabric, const schedule::CostOptions& costs = {},
                       std::optional<SimulationMethod> method = {});

  /// Returns the time for `bytes` bytes of all chunks together.
  SimulatedCollective of(double bytes) const;

  /// Returns the time for which a port must be busy, without a simulation: of() is about as long,
  /// or longer.
  double min_seconds(double bytes) const;

 private:
  bool simulate_some();
  bool simulate_by(SimulationMethod method);
  bool simulate_all(const schedule::Schedule& schedule);
  bool simulate_one(const schedule::Schedule& schedule);
  bool simulate_fewer();
  schedule::Schedule schedule_of(const Fabric& fabric) const;
  SimulatedRanks all_or_one(const Fabric& fabric) const;
  double bytes_of(const SimulatedRanks& some, double bytes) const;
  double grown(double few, double more, double base) const;

  schedule::Collective collective_;
  std::string algorithm_;
  Fabric fabric_;
  schedule::CostOptions costs_;
  SimulationMethod method_ = SimulationMethod::events;
  /// One. For fewer_hosts two; `growth_` times their difference is added to the third, or to the
  /// second if there is no third.
  std::vector<SimulatedRanks> simulated_;
  double growth_ = 0;
};

/// Simulates one size.
SimulatedCollective simulate_collective(schedule::Collective collective,
                                        const std::string& algorithm, const Fabric& fabric,
                                        double bytes, const schedule::CostOptions& costs = {},
                                        std::optional<SimulationMethod> method = {});

}  // namespace gradwire::plan
