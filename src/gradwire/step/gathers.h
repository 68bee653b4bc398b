#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/step/step_host.h"

namespace gradwire::step {

/// The gathers of parameters that are sharded, or that each rank steps a shard of. Gathers are
/// queued in the same order on all ranks. Where the exchange needs it they start in that order,
/// else each as soon as its shard is ready. Not thread-safe.
class Gathers {
 public:
  /// The shard of a unit: what the other half of the engine knows.
  struct Shards {
    /// Returns true if update() would not block.
    std::function<bool(std::size_t unit)> ready;
    /// Waits for the unit's gradient and steps the shard, if a step is due.
    std::function<void(std::size_t unit)> update;
  };

  /// All must outlive this.
  Gathers(const StepPolicy& policy, std::size_t units, exchange::Exchange& exchange, StepHost& host,
          const Clock& clock, Shards shards);

  /// Queues the unit's gather. Calls are the same on all ranks.
  void prefetch(std::size_t unit);
  /// Starts queued gathers whose shards are ready.
  void advance();
  /// Blocks until the whole unit is present and up to date.
  void await(std::size_t unit);
  /// Starts all queued gathers, ready or not.
  void start_queued();
  /// Starts the gather of a unit if it is absent. Only for exchanges that gather units in any
  /// order.
  void start(std::size_t unit);

  /// Waits for the unit's gather, if one is in flight.
  void finish(std::size_t unit);
  /// The shards have changed: the other ranks' parts are outdated.
  void invalidate(std::size_t unit) { states_[unit] = State::absent; }
  /// Frees all but the shard. The unit must not be queued.
  void release(std::size_t unit);

  bool is_resident(std::size_t unit) const { return states_[unit] == State::resident; }
  /// Returns true if the exchange gathers different units in any order.
  bool in_any_order() const { return order_ == exchange::OperationOrder::by_unit; }
  Duration exposed() const { return exposed_; }

 private:
  enum class State : std::uint8_t { absent, gathering, resident };

  bool ready(std::size_t unit) const;
  bool is_queued(std::size_t unit) const;
  bool unqueue(std::size_t unit);
  std::size_t start_next();
  int priority_of(std::size_t unit);

  const StepPolicy& policy_;
  exchange::Exchange& exchange_;
  StepHost& host_;
  const Clock& clock_;
  Shards shards_;
  exchange::OperationOrder order_;
  std::vector<State> states_;
  std::vector<Work> works_;
  std::deque<std::size_t> queue_;
  int started_ = 0;
  Duration exposed_{};
};

}  // namespace gradwire::step
