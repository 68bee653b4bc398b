#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/step/step_host.h"

namespace gradwire::step {

/// The reductions of gradients: all-reduces, or reduce-scatters where gradients are sharded. A pass
/// reduces every unit once, in one order on all ranks, whatever the order in which backward
/// completes them. Not thread-safe.
class Reductions {
 public:
  /// All must outlive this.
  Reductions(const std::vector<StepUnit>& units, const StepPolicy& policy,
             exchange::Exchange& exchange, StepHost& host, const Clock& clock);

  /// Opens a pass. With an exchange that has state, waits for the pass before.
  void begin_pass(std::vector<std::size_t> order);
  /// Call before the first gradient of the unit in this pass is written. Waits for the unit's
  /// reduction of the pass before, and where gradients are sharded until there is room for one more
  /// unit.
  void make_room(std::size_t unit);
  /// Counts a gradient. Returns true if it was the unit's last one.
  bool gradient_ready(std::size_t unit) { return --missing_[unit] == 0; }
  /// Counts all missing gradients of a unit. Returns false if there was none.
  bool complete(std::size_t unit);
  /// Starts the reductions of complete units, up to the first incomplete one in the order.
  void launch_complete();
  /// Closes the pass: all units must be complete.
  void end_pass();

  /// The optimizer steps with the means of all passes since the last step: tells the exchange once
  /// they have arrived.
  void commit();
  /// Waits for all means, which are dropped.
  void abandon();

  bool in_pass() const { return in_pass_; }
  std::size_t missing(std::size_t unit) const { return missing_[unit]; }
  /// Returns true if no gradient of the pass is missing.
  bool is_complete() const;
  /// Returns true if the unit's reduction has started in the open pass, or in the last one.
  bool launched(std::size_t unit) const { return launched_[unit]; }
  /// Units in flight, in the order in which they started.
  const std::vector<std::size_t>& in_flight() const { return in_flight_; }

  /// Returns true if settle() would not block.
  bool arrived(std::size_t unit) { return !works_[unit].valid() || works_[unit].done(); }
  /// Waits for the unit's reduction; without one in flight, does nothing.
  void settle(std::size_t unit);
  void settle_all();

  const StepStats& stats() const { return stats_; }

 private:
  void launch(std::size_t unit);
  std::size_t next_to_arrive() const;
  void report_end();

  const std::vector<StepUnit>& units_;
  const StepPolicy& policy_;
  exchange::Exchange& exchange_;
  StepHost& host_;
  const Clock& clock_;
  bool in_pass_ = false;
  bool pass_ends_ = false;  ///< All of a pass has started, and its end is not yet reported.
  bool commits_ = false;    ///< commit() is not yet reported.
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;  ///< Index in order_ of the next unit to launch.
  std::vector<std::size_t> missing_;
  std::vector<bool> has_room_;
  std::vector<bool> launched_;
  std::vector<Work> works_;  ///< Invalid: none in flight.
  std::vector<std::size_t> in_flight_;
  StepStats stats_;
};

}  // namespace gradwire::step
