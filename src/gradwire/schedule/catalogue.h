#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// An algorithm under its name. `make` ignores what its collective has no use for: the root of
/// all_reduce, for instance.
struct Algorithm {
  Collective collective = Collective::all_reduce;
  std::string_view name;
  std::string_view summary;  ///< One line for people.
  Schedule (*make)(const Topology& topology, const CollectiveSpec& spec) = nullptr;
  /// Whether it is for such topologies; null: for all. Right it is everywhere, but where this says
  /// no, it does what a simpler one does, so that nobody who looks for the fastest need try it.
  bool (*suits)(const Topology& topology) = nullptr;
};

/// All algorithms, those of a collective together. A new algorithm is a line here.
std::span<const Algorithm> algorithm_catalogue();

/// The names of a collective's algorithms, in the catalogue's order.
std::vector<std::string_view> algorithm_names(Collective collective);

/// All collectives, and the inverse of name_of; nothing for an unknown name.
std::span<const Collective> all_collectives();
std::optional<Collective> collective_named(std::string_view name);

/// The schedule of the algorithm called `name` for `spec`, all ranks of `topology` taking part.
/// Errors: invalid_argument, if there is no such algorithm (lists those there are), or the root or
/// target is none of the ranks.
Result<Schedule> make_schedule(const CollectiveSpec& spec, std::string_view name,
                               const Topology& topology);

}  // namespace gradwire
