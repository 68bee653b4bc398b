#pragma once

#include "gradwire/plan/model.h"
#include "gradwire/step/step_host.h"

namespace gradwire::plan {

/// An operation on all gradients, or on all parameters, cut into units.
struct WholeExchange {
  double bandwidth = 0;  ///< Seconds in which it fills the link.
  double latency = 0;    ///< Its further seconds, as one operation.
  /// The further seconds of a unit of kSmallestUnit of it; those of larger units are in between.
  double smallest_latency = 0;

  double total() const { return bandwidth + latency; }
  double latency_of(double share) const {
    return smallest_latency + share * (latency - smallest_latency);
  }
};

/// Share of the parameters in the smallest unit, which is needed first by forward.
inline constexpr double kSmallestUnit = 1.0 / 3000;

/// A step's compute and communication.
struct OverlapInput {
  step::StepPolicy policy;
  /// Passes; gradients of the last one are exchanged, in stages 2 and 3 of all.
  int accumulate = 1;
  double forward = 0;    ///< Seconds of one pass.
  double backward = 0;   ///< Seconds of one pass.
  WholeExchange reduce;  ///< All-reduce, or reduce-scatter from stage 1 on.
  WholeExchange gather;  ///< Used from stage 1 on.
};

/// Returns the seconds of exposed communication in a step: the step engine runs the model's layers
/// in virtual time (emulation/emulated_training.h), over one link that carries the unit of the
/// highest priority. Units are as in training, but at most about 48, so that a step is quickly
/// computed.
///
///   no overlap: exposed = reduce + gather
///   full overlap: exposed >= reduce + gather - compute
double exposed_time(const ModelShape& model, const OverlapInput& input);

}  // namespace gradwire::plan
