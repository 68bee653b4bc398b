#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/types.h"
#include "gradwire/train/zero/flat_unit.h"
#include "gradwire/train/zero/unit_exchange.h"

namespace gradwire {

/// Gathers the other ranks' parts of units, and frees them. Gathers start in the same order on
/// every rank, regardless of timing: a queued one starts as soon as its shard is ready, but
/// never before those queued earlier. Not thread-safe.
class ParameterGathers {
 public:
  struct Options {
    std::shared_ptr<const Clock> clock;
    /// Returns true if the shard is ready without waiting.
    std::function<bool(std::size_t)> ready;
    std::function<void(std::size_t)> step_unit;  ///< Waits for the shard and updates it.
  };

  ParameterGathers(std::vector<FlatUnit>& units, UnitExchange& exchange, Options options);

  /// Queues the unit's gather. Calls must be the same on all ranks.
  void prefetch(std::size_t unit);
  /// Starts queued gathers in order, up to the first one that is not ready.
  void advance();
  /// Blocks until the whole unit is present.
  void await(std::size_t unit);
  /// Starts all queued gathers, ready or not.
  void start_queued();

  /// Call before the shards change: other ranks' parts of the unit become outdated.
  void invalidate(std::size_t unit);
  /// Frees all but the shard, if the unit is sharded. The unit must not be queued.
  void release(std::size_t unit);

  bool is_resident(std::size_t unit) const { return states_[unit] == State::resident; }
  Duration exposed() const { return exposed_; }

 private:
  enum class State { absent, gathering, resident };

  void start(std::size_t unit);
  void finish(std::size_t unit);

  std::vector<FlatUnit>& units_;
  UnitExchange& exchange_;
  Options options_;
  std::vector<State> states_;
  std::deque<std::size_t> queue_;
  int started_ = 0;
  Duration exposed_{};
};

}  // namespace gradwire
