#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/gradient/step_plan.h"

namespace gradwire {

/// The buckets of a plan as flat units of float32. Each has P equal parts; part r belongs to rank
/// r. Only the end of a unit is padded.
struct ZeroUnits {
  Rank rank = 0;
  int ranks = 1;
  std::vector<std::size_t> shards;       ///< By unit: elements of a part.
  std::vector<std::size_t> first_layer;  ///< By unit: the first and last of its layers.
  std::vector<std::size_t> last_layer;
  std::vector<std::vector<std::size_t>> of_layer;  ///< By layer: its units.

  std::size_t size() const { return shards.size(); }
  std::size_t layers() const { return of_layer.size(); }
  /// Elements, padding included.
  std::size_t count(std::size_t unit) const {
    return shards[unit] * static_cast<std::size_t>(ranks);
  }
  std::size_t bytes() const;
};

ZeroUnits zero_units(const StepPlan& plan, Rank rank, int ranks);

/// Numbers the visits of layers. Each layer is visited twice a step: in forward and in backward.
/// Visits are numbered from the first step's first layer, so that a smaller number is sooner.
struct LayerVisits {
  std::size_t layers = 1;

  std::int64_t visits_per_step() const { return 2 * static_cast<std::int64_t>(layers); }
  std::int64_t step_of(std::int64_t visit) const { return visit / visits_per_step(); }
  bool is_forward(std::int64_t visit) const {
    return visit % visits_per_step() < static_cast<std::int64_t>(layers);
  }
  std::size_t layer_of(std::int64_t visit) const {
    const std::int64_t in_step = visit % visits_per_step();
    return static_cast<std::size_t>(is_forward(visit) ? in_step : visits_per_step() - 1 - in_step);
  }
  /// The next step's forward through `layer`.
  std::int64_t forward_after(std::int64_t visit, std::size_t layer) const {
    return (step_of(visit) + 1) * visits_per_step() + static_cast<std::int64_t>(layer);
  }
};

/// Priority of an operation: the sooner its result is needed, the higher (earliest deadline first).
inline int priority_of(std::int64_t needed_at_visit) {
  return static_cast<int>(-needed_at_visit);
}

/// Marks both ends of a part with its number of optimizer steps, so that a layer can check that its
/// parameters have arrived.
void mark_version(std::span<float> part, std::int64_t version);
/// Marks the ends of all parts with an invalid version.
void mark_absent(std::span<float> unit, int ranks);

/// Throws Exception(mismatch) that names the layer, the unit and the rank, unless every part of
/// `unit` is marked with `version`. An empty `unit` is one that is not present.
void check_version(std::span<const float> unit, int ranks, std::int64_t version, std::size_t layer,
                   std::size_t index);

}  // namespace gradwire
