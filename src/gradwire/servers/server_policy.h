#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::servers {

/// Whom an update of the parameters waits for.
enum class Mode : std::uint8_t {
  sync,   ///< A step is the mean of the gradients of all workers, or of the first of them.
  ssp,    ///< Each gradient is a step. A worker waits for those that lag behind (stale synchronous
          ///< parallel: Ho et al., NeurIPS 2013).
  async,  ///< Each gradient is a step, and no worker waits (Downpour: Dean et al., NeurIPS 2012).
};
/// "sync", "ssp", "async".
std::string_view name_of(Mode mode);

/// Factor on the learning rate of a gradient by its staleness, the number of updates of its unit
/// since the worker read the parameters.
struct RateRule {
  enum class Kind : std::uint8_t {
    none,     ///< 1
    inverse,  ///< 1 / max(1, staleness) (Zhang et al., IJCAI 2016)
    power,    ///< (1 + staleness) ^ -exponent
  };
  Kind kind = Kind::none;
  double exponent = 0.5;

  double factor(std::int64_t staleness) const;
};

/// Settings of a ServerCore, the same on all servers.
struct ServerPolicy {
  Mode mode = Mode::sync;
  int workers = 1;
  /// sync: a step is made of the first ceil(use * workers) gradients; the others are dropped.
  double use = 1;
  /// With `use` below 1: time for which a step with enough gradients waits for more of them.
  Duration grace{};
  /// ssp: a worker begins clock c when all living ones have finished clock c - 1 - staleness, so
  /// that no worker is more than `staleness` + 1 pushes ahead of another.
  std::int64_t staleness = 0;
  RateRule rate;
  /// sync with all gradients: the units of a step are applied together, when the last of its
  /// gradients has arrived, as an optimizer needs that takes norms over units or servers.
  bool whole_steps = false;
  /// sync with all gradients: by unit, whether each of its gradients is a step, as in mode async.
  /// Units beyond its end are synchronous.
  std::vector<bool> asynchronous;

  Mode mode_of(std::size_t unit) const {
    return unit < asynchronous.size() && asynchronous[unit] ? Mode::async : mode;
  }
  /// All workers take the same steps: each needs a gradient of every one.
  bool has_common_steps() const { return mode == Mode::sync && use >= 1; }
};

/// Sets the mode and its staleness to those of a text: "sync", "ssp:3" or "async". Throws
/// Exception(invalid_argument).
void set_mode(ServerPolicy& policy, std::string_view text);
/// The text of set_mode().
std::string mode_text(const ServerPolicy& policy);

/// Returns the rule of "none", "inverse" or "power:0.5". Throws Exception(invalid_argument).
RateRule parse_rate_rule(std::string_view text);

/// Throws Exception(invalid_argument) for values out of range, and for a `use` below 1 that drops
/// no gradient; the message names the smallest number of workers of which it drops one.
void check(const ServerPolicy& policy);

/// Groups of workers, which are synchronous within.
struct Groups {
  int count = 0;  ///< 0: each worker is one.
  bool beyond_8 = false;
};
/// Returns the number of workers of a group. Throws Exception(invalid_argument) in mode sync, in
/// which all workers are one group, for a number that does not divide the workers, and for more
/// than 8 groups without `beyond_8`.
int workers_per_group(const Groups& groups, int workers, Mode mode);

/// Returns ceil(use * workers), at least 1.
int gradients_per_step(double use, int workers);

}  // namespace gradwire::servers
