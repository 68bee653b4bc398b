#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gradwire/comm/communicator.h"
#include "gradwire/emulation/emulated_device.h"
#include "gradwire/emulation/emulated_units.h"
#include "gradwire/emulation/pass_times.h"
#include "gradwire/exchange/make_exchange.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/step/overlap.h"
#include "gradwire/step/step_plan.h"
#include "gradwire/workload/layer_profile.h"

namespace gradwire::emulation {

/// A communication scheme to be measured.
struct StepCase {
  std::string codec = "none";
  int accumulate = 1;
  int local_steps = 1;  ///< LocalStepsConfig::steps; 1: gradients are averaged in every step.
  step::Overlap overlap = step::Overlap::full;
  /// 1 to 3: ZeRO stage (step/step_engine.h). Only with element-wise codecs, one pass, no
  /// local steps and Overlap::full.
  int zero_stage = 0;
  /// The parameters of local steps, whose codec is `codec`: as in LocalStepsConfig. Overlap::full
  /// only.
  int fragments = 1, overlap_steps = 0;
  /// Parameter servers: the last ranks, or the first workers with `beside_workers`. 0: none. Only
  /// without codecs, accumulation, local steps and ZeRO.
  int servers = 0;
  bool beside_workers = false;
  servers::ServerPolicy policy;  ///< Settings of the servers, without the number of workers.

  /// Returns the local steps as the trainer represents them. Not checked.
  step::LocalStepsConfig local() const;
};

/// Options that all cases share.
struct StepMeasurementOptions {
  Duration compute{};  ///< Duration of one forward and backward pass.
  int steps = 0;       ///< Measured steps; 0: as many as take `duration`, at least 3.
  Duration duration = std::chrono::seconds(10);
  int warmup = 3;                      ///< Unmeasured steps before those.
  int single_steps = 3;                ///< Steps without communication.
  step::StepPlanOptions plan;          ///< `compress` is set according to the codec.
  exchange::ExchangeOptions exchange;  ///< `codec` is overridden by the case.
  int prefetch = 2;                    ///< ZeRO stage 3: layers whose parameters are prefetched.
  std::uint64_t seed = 1;
  /// A communicator of the same ranks, of FailureDomain::pair, for cases with servers.
  std::shared_ptr<Communicator> pairs;
  PassTimes times;  ///< With servers: factors on a worker's compute.
};

/// Times are of the slowest rank. A step is an optimizer step: with accumulation, several passes.
struct StepFigures {
  int ranks = 1;
  int steps = 0;
  Duration single{};          ///< Duration of a step with compute on all ranks and no
                              ///< communication.
  Duration step{};            ///< Mean duration of a step with communication.
  Duration exposed{};         ///< Exposed communication per step: time without compute.
  double bytes_per_step = 0;  ///< Sent by a rank; < 0 if the engine does not count.
  double cpu_seconds = 0;     ///< User and system time of a rank per step.
  EmulatedMemory memory;      ///< Peak of a rank.
  /// With servers, until the first worker was done. `ranks` are the workers.
  struct Served {
    double staleness_mean = 0;  ///< In updates, of applied gradients.
    std::int64_t staleness_p99 = 0, staleness_max = 0;
    double updates_per_second = 0;  ///< Gradients of a worker that a unit applied.
    double late = 0;                ///< Share of the gradients that were dropped.
    double busy = 0;                ///< Share of the time in which the servers computed.
  };
  std::optional<Served> served;
  std::size_t elements = 0;  ///< The model's parameters.

  /// Bytes that a rank sends in an all-reduce of all gradients by theory, 2 (P - 1) / P of them:
  /// the volume of DDP.
  double all_reduce_bytes() const;

  /// Actual compute as a share of possible compute.
  double efficiency() const;
};

/// Measures one case. Collective; the result is the same on all ranks, or on all workers. Throws
/// Exception: what make_exchange() and the communicator throw.
StepFigures measure_step(const std::shared_ptr<Communicator>& communicator,
                         const workload::LayerProfile& profile, const StepCase& what,
                         const StepMeasurementOptions& options, Alarm& alarm,
                         TraceRecorder* trace = nullptr);

/// Upper bound of the efficiency if a rank sends at `bytes_per_second` all the time and all
/// communication is hidden behind compute, forward included: T_s / max(T_s, T_c). With K passes a
/// step, gradients can only be sent between the last pass and the next step's first. The bound is
/// then K T_s / ((K - 1) T_s + max(T_s, T_c)), where T_s is the time of one pass. With local steps,
/// only F O of H steps' compute, in which an averaging is in flight, hide communication. With T_s
/// the time of a step and T_c that of its share of the bytes: T_s / (T_s + max(0, T_c - F O / H
/// T_s)).
double efficiency_bound(const StepCase& what, const StepFigures& figures, double bytes_per_second);

}  // namespace gradwire::emulation
