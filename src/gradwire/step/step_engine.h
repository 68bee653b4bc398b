#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/step/gathers.h"
#include "gradwire/step/reductions.h"
#include "gradwire/step/step_host.h"

namespace gradwire::step {

/// One rank's side of training steps, as a state machine: which exchange of which unit starts when,
/// with which priority, and what waits for it. It has no tensors, threads or clocks of its own. Its
/// drivers are autograd's hooks (train/), emulated layers (emulation/) and virtual time
/// (plan/simulate/). Data parallelism is stage 0, ZeRO stages 1 to 3.
///
/// A driver reports events in the order in which they happen. Every rank reports the same ones, but
/// gradients of a pass may become ready in any order:
///
///     begin_forward, (before_block, after_block)..., end_forward,
///     begin_pass, (before_backward, before_gradient, gradient_ready)..., end_pass,
///     begin_step
///
/// With Overlap::full a step is not over when begin_step() returns. It goes on while the next
/// forward runs, unit by unit, and finish() completes it. The parameters are the same bits either
/// way. Not thread-safe.
class StepEngine {
 public:
  /// `exchange`, `host` and `clock` must outlive this. Units are in the order of their reductions.
  StepEngine(std::vector<StepUnit> units, const StepPolicy& policy, exchange::Exchange& exchange,
             StepHost& host, const Clock& clock);
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  /// Forward begins. `training`: a backward follows it.
  void begin_forward(bool training);
  /// The block with these units is about to run, in forward or again in backward. Blocks until its
  /// parameters are up to date; gathers those of the next blocks meanwhile.
  void before_block(const std::vector<std::size_t>& units);
  /// The block has run. `keep`: its parameters stay until backward, because the driver cannot
  /// report when backward reaches the block.
  void after_block(const std::vector<std::size_t>& units, bool keep = false);
  /// Forward has ended. Completes the steps of units that it did not use.
  void end_forward();
  /// Number of units that the blocks of this forward have used: the position of a block in forward.
  std::size_t position() const { return forward_order_.size(); }

  /// Backward begins, and its gradients are to be reduced.
  void begin_pass();
  /// Stage 3: backward is about to run the block with these units that ended at `position`.
  void before_backward(const std::vector<std::size_t>& units, std::size_t position);
  /// A gradient of the unit is about to be written.
  void before_gradient(std::size_t unit) { reductions_.make_room(unit); }
  /// One of the unit's gradients is complete.
  void gradient_ready(std::size_t unit);
  /// Backward has ended; missing gradients count as zero. Without Overlap::full, waits for all.
  void end_pass();

  /// The optimizer steps on all units. Called after end_pass(), or between begin_pass() and
  /// end_pass(): each unit then steps as soon as its mean arrives, in poll(), and the rest after
  /// the pass.
  void begin_step();
  /// Drops the means of all passes since the last step, in place of begin_step(). The exchange's
  /// state is again that of the last step, which completes first. Called after end_pass().
  void abandon_step();
  /// Steps the units whose means have arrived, and starts the gathers that are ready. Never blocks.
  void poll();
  /// Returns true if poll() has something to look for.
  bool is_polling() const { return stepping_ && !reductions_.in_flight().empty(); }
  /// Completes the unit's step, if one is due, so that its parameters can be used.
  void await(std::size_t unit);
  /// Completes the pending step on all units, and waits for all reductions of replicated gradients.
  void finish();
  /// Completes the pending step, if there is one.
  void finish_step();

  /// Stage 3: gathers all parameters, until the next forward in training. Completes the step.
  void consolidate();
  /// Stage 3: frees all gathered parameters.
  void release_all();
  /// The parameters of all units were changed from outside: gathers them again.
  void invalidate_all();

  bool is_consolidated() const { return consolidated_; }
  /// Returns true if a step on the unit is due.
  bool is_pending(std::size_t unit) const { return due_[unit]; }
  /// Returns true if a step on any unit is due, or any reduction is in flight.
  bool is_pending() const;
  /// Returns true if the unit's parameters are present and no step on them is due.
  bool is_current(std::size_t unit) const { return gathers_.is_resident(unit) && !due_[unit]; }
  const Reductions& reductions() const { return reductions_; }
  Reductions& reductions() { return reductions_; }
  StepStats stats() const;

 private:
  void start_step();
  bool must_step(std::size_t unit) const;
  bool can_step(std::size_t unit);
  void step_unit(std::size_t unit);
  void step_all();
  bool step_any_arrived();
  void complete_unit(std::size_t unit);
  void prefetch_after(std::size_t position);
  void prefetch_before(std::size_t position, const std::vector<std::size_t>& own);
  void gather_for_forward(const std::vector<std::size_t>& units);
  void await_roots();
  std::vector<std::size_t> reduction_order() const;

  std::vector<StepUnit> units_;
  StepPolicy policy_;
  StepHost& host_;
  Reductions reductions_;
  Gathers gathers_;
  bool stepping_ = false;  ///< begin_step() was called, and a unit may still be due.
  std::vector<bool> due_;  ///< By unit: its optimizer has yet to step.

  bool training_ = false;
  bool in_forward_ = false;
  bool consolidated_ = false;
  std::vector<std::size_t> forward_order_;  ///< Units in the order of this forward.
  /// Units of the previous forward: a prediction for prefetching.
  std::vector<std::size_t> previous_order_;
  std::vector<bool> complete_;  ///< By unit: backward is done with it.
};

}  // namespace gradwire::step
