#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/emulated_device.h"
#include "gradwire/gradient/emulated_gradients.h"
#include "gradwire/gradient/emulated_steps.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/gradient/step_plan.h"
#include "gradwire/gradient/streaming_schedule.h"
#include "gradwire/report/trace.h"

namespace gradwire {

struct EmulatedTrainingOptions {
  Duration compute{};  ///< Of one forward and backward pass.
  int accumulate = 1;  ///< Passes a step; only the last one's gradients leave.
  Overlap overlap = Overlap::full;
  /// With it, gradients stay, and parameters are averaged when it says so; `overlap` then says
  /// nothing. The plan is one of plan_local_steps().
  std::optional<StreamingSchedule> local_steps = std::nullopt;
};

/// The steps of data-parallel training with emulated compute and real communication: what
/// DataParallel does, without tensors. Buckets leave in backward when their last layer is done, the
/// later the more urgent; with Overlap::full each layer of the next forward waits for the
/// buckets that hold its parameters, and nothing else does.
///
/// With local steps it is what LocalSgd does (train/local_sgd.h): a fragment's buckets leave after
/// the step that the schedule names, all alike urgent, and are waited for after another.
class EmulatedTraining final : public EmulatedSteps {
 public:
  /// All but the options must outlive it. `averager` may be null: nothing is communicated. So may
  /// `trace`.
  EmulatedTraining(const LayerProfile& profile, const StepPlan& plan,
                   const EmulatedTrainingOptions& options, EmulatedGradients& gradients,
                   Averager* averager, Alarm& alarm, TraceRecorder* trace = nullptr);

  void step() override;
  void finish() override { collect_all(); }
  const EmulatedDevice& device() const override { return device_; }
  /// All of both, all the time.
  EmulatedMemory memory() const override {
    const std::size_t bytes = plan_.elements() * sizeof(float);
    return {bytes, bytes};
  }

 private:
  void forward(bool waits);
  void backward(bool sends);
  void complete(std::size_t layer);
  void launch(std::size_t bucket);
  void start(std::size_t bucket, int urgency);
  void average_parameters();
  void collect(std::size_t bucket);
  void collect_all();
  void optimise(std::size_t bucket) {
    const TraceScope traced(trace_, TraceKind::optimiser);
    read_ += gradients_.read(bucket);
  }
  Duration share(double of_step) const;

  const LayerProfile& profile_;
  const StepPlan& plan_;
  EmulatedTrainingOptions options_;
  EmulatedGradients& gradients_;
  Averager* averager_;
  TraceRecorder* trace_;
  EmulatedDevice device_;
  std::vector<std::vector<std::size_t>> ready_after_;  ///< By layer: the buckets it completes.
  std::vector<bool> in_flight_;                        ///< By bucket.
  std::size_t flying_ = 0;
  bool launched_ = false;  ///< In this step.
  std::int64_t steps_ = 0;
  float read_ = 0;
};

}  // namespace gradwire
