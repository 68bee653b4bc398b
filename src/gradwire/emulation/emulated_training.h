#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "gradwire/emulation/emulated_device.h"
#include "gradwire/emulation/emulated_gradients.h"
#include "gradwire/emulation/emulated_steps.h"
#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/gradient/step_plan.h"
#include "gradwire/gradient/streaming_schedule.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

struct EmulatedTrainingOptions {
  Duration compute{};  ///< Of one forward and backward pass.
  int accumulate = 1;  ///< Passes per step; only the last sends gradients.
  Overlap overlap = Overlap::full;
  /// If set, gradients stay local and parameters are averaged on this schedule; `overlap` is
  /// ignored. The plan must be one of plan_local_steps().
  std::optional<StreamingSchedule> local_steps = std::nullopt;
};

/// Steps of data-parallel training with emulated compute and real communication: the behavior of
/// DataParallel without tensors. A bucket is started in backward when its last layer is done, with
/// a higher priority than the buckets before it. With Overlap::full each layer of the next forward
/// waits only for the buckets that hold its parameters.
///
/// With local steps it behaves as LocalSgd (train/local_sgd/local_sgd.h): a fragment's buckets are
/// started after the step that the schedule names, all with the same priority, and are waited for
/// after a later step.
class EmulatedTraining final : public EmulatedSteps {
 public:
  /// All but the options must outlive it. `averager` may be null: nothing is communicated. `trace`
  /// may be null.
  EmulatedTraining(const LayerProfile& profile, const StepPlan& plan,
                   const EmulatedTrainingOptions& options, EmulatedGradients& gradients,
                   Averager* averager, Alarm& alarm, TraceRecorder* trace = nullptr);

  void step() override;
  void finish() override { collect_all(); }
  const EmulatedDevice& device() const override { return device_; }
  /// All parameters and gradients are resident all the time.
  EmulatedMemory memory() const override {
    const std::size_t bytes = plan_.elements() * sizeof(float);
    return {bytes, bytes};
  }

 private:
  void forward(bool waits);
  void backward(bool sends);
  void complete(std::size_t layer);
  void launch(std::size_t bucket);
  void start(std::size_t bucket, int priority);
  void average_parameters();
  void collect(std::size_t bucket);
  void collect_all();
  void step_optimizer(std::size_t bucket) {
    const TraceScope traced(trace_, TraceKind::optimizer);
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
  std::size_t in_flight_count_ = 0;
  bool launched_ = false;  ///< In this step.
  std::int64_t steps_ = 0;
  float read_ = 0;
};

}  // namespace gradwire
