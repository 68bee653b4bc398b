#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gradwire/comm/communicator.h"
#include "gradwire/gradient/emulated_steps.h"
#include "gradwire/gradient/emulated_training.h"
#include "gradwire/gradient/layer_profile.h"
#include "gradwire/gradient/local_steps.h"
#include "gradwire/gradient/make_averager.h"

namespace gradwire {

/// A way to communicate, to be measured.
struct StepCase {
  std::string codec = "none";
  int accumulate = 1;
  int local_steps = 1;  ///< LocalStepsConfig::steps; 1: gradients are averaged in every step.
  Overlap overlap = Overlap::full;
  /// 1 to 3: what ZeRO shards (gradient/emulated_zero.h); with codecs of single values, one pass,
  /// no local steps and Overlap::full only.
  int zero_stage = 0;
  /// Of local steps, whose codec is `codec`: LocalStepsConfig's. Overlap::full only.
  int fragments = 1, overlap_steps = 0;

  /// As the trainer has them. Not checked.
  LocalStepsConfig local() const;
};

/// How all of them are measured.
struct StepMeasurementOptions {
  Duration compute{};  ///< Of one forward and backward pass.
  int steps = 0;       ///< That count; 0: as many as take `duration`, at least 3.
  Duration duration = std::chrono::seconds(10);
  int warmup = 3;            ///< Steps before those.
  int single_steps = 3;      ///< Steps without communication.
  StepPlanOptions plan;      ///< `compress` is set as the codec needs it.
  AveragerOptions averager;  ///< `codec` is that of the case.
  int prefetch = 2;          ///< ZeRO stage 3: layers ahead whose parameters are gathered.
  std::uint64_t seed = 1;
};

/// Times are of the slowest rank. A step is one of the optimiser: with accumulation, several
/// passes.
struct StepFigures {
  int ranks = 1;
  int steps = 0;
  Duration single{};          ///< Of a step, all ranks computing and none communicating.
  Duration step{};            ///< Of a step with communication: the mean.
  Duration exposed{};         ///< Of a step: computing stood still.
  double bytes_per_step = 0;  ///< That a rank sends.
  double cpu_seconds = 0;     ///< User and system time of a rank for a step.
  EmulatedMemory memory;      ///< Of a rank, at most.
  std::size_t elements = 0;   ///< The model's parameters.

  /// What an all-reduce of all gradients sends by theory, 2 (P - 1) / P of them: DDP's volume.
  double all_reduce_bytes() const;

  /// Of what the ranks could compute, the share that they did.
  double efficiency() const;
};

/// Measures one case. Called by all ranks together, the result is the same on all. Throws
/// Exception: what make_averager() and the communicator throw.
StepFigures measure_step(const std::shared_ptr<Communicator>& communicator,
                         const LayerProfile& profile, const StepCase& what,
                         const StepMeasurementOptions& options, Alarm& alarm,
                         TraceRecorder* trace = nullptr);

/// What of compute is left at best, if a rank can send `bytes_per_second` all the time and whatever
/// is sent hides behind compute, forward included: T_s / max(T_s, T_c). With K passes a step
/// gradients can only travel between the last pass and the next step's first, so that it is
/// K T_s / ((K - 1) T_s + max(T_s, T_c)), where T_s is the time of one pass. With local steps, of H
/// steps' compute only the F O in which an average is under way hide something: with T_s the time
/// of a step and T_c that of its share of the bytes, T_s / (T_s + max(0, T_c - F O / H T_s)).
double efficiency_bound(const StepCase& what, const StepFigures& figures, double bytes_per_second);

}  // namespace gradwire
