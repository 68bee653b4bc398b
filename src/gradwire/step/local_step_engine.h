#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/step/local_steps.h"
#include "gradwire/step/reductions.h"

namespace gradwire::step {

/// One rank's side of local steps (local SGD, DiLoCo, Streaming DiLoCo), as a state machine: after
/// which step the average of which fragment starts, and after which it is applied. A fragment is a
/// set of units. Of the host it asks for gradients(): the difference from the last common
/// parameters; and for step(): apply the mean difference. Drivers are as those of StepEngine. Not
/// thread-safe.
class LocalStepEngine {
 public:
  /// `fragment_of`: by unit; ascending. `exchange`, `host` and `clock` must outlive this.
  LocalStepEngine(const StreamingSchedule& schedule, std::vector<std::size_t> fragment_of,
                  exchange::Exchange& exchange, StepHost& host, const Clock& clock);
  LocalStepEngine(const LocalStepEngine&) = delete;
  LocalStepEngine& operator=(const LocalStepEngine&) = delete;

  /// The rank has taken one optimizer step. Starts and applies what the schedule says.
  void step_done();

  /// Averages and applies all fragments that have changed since their last average.
  void synchronize();

  /// Waits for the average in flight, if any, without applying it.
  void settle() { reductions_.settle_all(); }

  /// The state that a checkpoint must hold, after settle().
  struct Position {
    std::int64_t steps = 0;                    ///< Steps taken.
    std::optional<std::size_t> pending;        ///< The fragment whose average is not yet applied.
    std::vector<std::int64_t> averaged_after;  ///< By fragment: the step of its last average.
  };
  const Position& position() const { return position_; }
  void set_position(Position position) { position_ = std::move(position); }

  const StepStats& stats() const { return reductions_.stats(); }

 private:
  void begin(const std::vector<std::size_t>& fragments);
  void apply(const std::vector<std::size_t>& fragments);
  void apply_pending();
  std::vector<std::size_t> units_of(const std::vector<std::size_t>& fragments) const;

  StreamingSchedule schedule_;
  std::vector<std::size_t> fragment_of_;
  StepHost& host_;
  std::vector<StepUnit> units_;
  StepPolicy policy_;
  Reductions reductions_;
  Position position_;
};

}  // namespace gradwire::step
