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

/// Brings the other ranks' parts of units here, and drops them again. Gathers start in the same
/// order on every rank, whichever of them are early or late: one that is expected starts as soon as
/// its shard is ready, but never before those expected earlier. Not thread-safe.
class ParameterGathers {
 public:
  struct Options {
    std::shared_ptr<const Clock> clock;
    std::function<bool(std::size_t)> ready;       ///< Whether the shard can be had without waiting.
    std::function<void(std::size_t)> make_ready;  ///< Waits, and brings it up to date.
  };

  ParameterGathers(std::vector<FlatUnit>& units, UnitExchange& exchange, Options options);

  /// The unit will be needed after those expected so far. Calls must be the same on all ranks.
  void expect(std::size_t unit);
  /// Starts what is expected and ready.
  void advance();
  /// Returns when all of the unit is here.
  void require(std::size_t unit);
  /// Starts all that is expected, ready or not.
  void start_expected();

  /// The shards are about to change: what is here of other ranks' will be out of date.
  void change(std::size_t unit);
  /// Drops all but the shard, if the unit is sharded. It must not be expected.
  void release(std::size_t unit);

  bool here(std::size_t unit) const { return states_[unit] == State::here; }
  Duration exposed() const { return exposed_; }

 private:
  enum class State { away, coming, here };

  void start(std::size_t unit);
  void finish(std::size_t unit);

  std::vector<FlatUnit>& units_;
  UnitExchange& exchange_;
  Options options_;
  std::vector<State> states_;
  std::deque<std::size_t> expected_;
  int started_ = 0;
  Duration exposed_{};
};

}  // namespace gradwire
