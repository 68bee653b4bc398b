#pragma once

namespace gradwire {

/// What stops a job, and what it takes to go on. Seconds.
struct FailureModel {
  double failures_per_day = 0;  ///< Of the whole job: hosts times those of each.
  double checkpoint = 0;        ///< That training stands still to write one.
  double restart = 0;           ///< From the failure until training goes on.
};

struct FailureCost {
  double interval = 0;      ///< Seconds of training between two checkpoints; 0: none are needed.
  double useful_share = 1;  ///< Of all time, what is spent on steps that count.
};

/// Failures come at random, as often whenever (exponentially distributed gaps), also while a
/// checkpoint is written and during a restart; what was trained since the last checkpoint is lost.
/// So an interval of w seconds of training takes (e^(R f)) (e^(f (w + C)) - 1) / f seconds in the
/// mean (Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
/// Future Generation Computer Systems 22, 2006, equation 20, without his fixed lead-in; f:
/// failures a second, C: checkpoint, R: restart).
///
/// `interval`: of training between two checkpoints; 0: the best, which is found numerically, near
/// sqrt(2 C / f) (Young, CACM 17, 1974). Without a checkpoint cost (C = 0) and an interval the
/// share is e^(-R f): only restarts count.
FailureCost failure_cost(const FailureModel& model, double interval = 0);

}  // namespace gradwire
