#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/emulated_device.h"
#include "gradwire/gradient/emulated_gradients.h"
#include "gradwire/gradient/emulated_steps.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/gradient/step_plan.h"
#include "gradwire/report/trace.h"

namespace gradwire {

struct EmulatedTrainingOptions {
  Duration compute{};   ///< Of one forward and backward pass.
  int accumulate = 1;   ///< Passes a step; only the last one's gradients leave.
  int local_steps = 1;  ///< Each parameter is averaged every so many steps, a fragment each step.
  Overlap overlap = Overlap::full;
};

/// The steps of data-parallel training with emulated compute and real communication: what
/// DataParallel does, without tensors. Buckets leave in backward when their last layer is done, the
/// later the more urgent; with Overlap::full each layer of the next forward waits for the
/// buckets that hold its parameters, and nothing else does.
///
/// With local steps the fragment that left in one step is waited for when that of the next leaves.
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
  std::vector<std::size_t> fragment_of_;               ///< By bucket.
  std::vector<bool> in_flight_;                        ///< By bucket.
  std::size_t flying_ = 0;
  std::size_t fragment_ = 0;  ///< That leaves in this step.
  bool launched_ = false;     ///< Something of it has.
  std::int64_t steps_ = 0;
  float read_ = 0;
};

}  // namespace gradwire
