#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

namespace gradwire::schedule {

/// One entry of the algorithm catalogue. `make` ignores spec fields that its collective does not
/// use, such as the root of all_reduce.
struct Algorithm {
  Collective collective = Collective::all_reduce;
  std::string_view name;
  std::string_view summary;  ///< One-line description.
  Schedule (*make)(const topology::Topology& topology, const CollectiveSpec& spec) = nullptr;
  /// Returns true if the algorithm is worth trying on the topology; null: on all topologies. It is
  /// correct on every topology. Where this returns false it does the work of a simpler algorithm,
  /// so a search for the fastest one skips it.
  bool (*suits)(const topology::Topology& topology) = nullptr;
};

/// All algorithms, grouped by collective. A new algorithm adds one line to this table.
std::span<const Algorithm> algorithm_catalogue();

/// Names of a collective's algorithms, in catalogue order.
std::vector<std::string_view> algorithm_names(Collective collective);

/// All collectives, and the inverse of name_of(); nullopt for an unknown name.
std::span<const Collective> all_collectives();
std::optional<Collective> collective_named(std::string_view name);

/// Returns the schedule of algorithm `name` for `spec`; all ranks of `topology` take part. Fails
/// with invalid_argument if the algorithm does not exist (the message lists the known ones), or if
/// the root or target is not a rank.
Result<Schedule> make_schedule(const CollectiveSpec& spec, std::string_view name,
                               const topology::Topology& topology);

}  // namespace gradwire::schedule
