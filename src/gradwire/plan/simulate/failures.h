#pragma once

namespace gradwire::plan {

/// Failures of a job, and the cost of recovery. Times in seconds.
struct FailureModel {
  double failures_per_day = 0;  ///< Failures of the whole job: hosts times failures per host.
  double checkpoint = 0;        ///< Training stops that long to write one.
  double restart = 0;           ///< From the failure until training resumes.
};

struct FailureCost {
  double interval = 0;      ///< Seconds of training between two checkpoints; 0: none needed.
  double useful_share = 1;  ///< Share of all time spent on steps that are not lost.
};

/// Returns the cost of failures with exponentially distributed gaps, which also occur during
/// checkpoints and restarts. Training since the last checkpoint is lost. An interval of w seconds
/// of training takes (e^(R f)) (e^(f (w + C)) - 1) / f seconds on average (Daly, "A higher order
/// estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
/// Systems 22, 2006, equation 20, without his fixed lead-in; f: failures per second, C: checkpoint,
/// R: restart).
///
/// `interval`: seconds of training between two checkpoints; 0: the optimum, found numerically, near
/// sqrt(2 C / f) (Young, CACM 17, 1974). Without checkpoint cost (C = 0) and interval, the share is
/// e^(-R f): only restarts count.
FailureCost failure_cost(const FailureModel& model, double interval = 0);

}  // namespace gradwire::plan
