#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gradwire/emulation/emulated_steps.h"
#include "gradwire/emulation/zero_gradients.h"
#include "gradwire/emulation/zero_parameters.h"
#include "gradwire/trace/trace.h"
#include "gradwire/workload/layer_profile.h"

namespace gradwire {

struct EmulatedZeroOptions {
  Duration compute{};  ///< Of a forward and backward pass.
  int stage = 1;       ///< 1: optimizer states are sharded, 2: also gradients, 3: also parameters.
  /// Stage 3: number of layers whose parameters are prefetched.
  int prefetch = 2;
  /// Stages 2 and 3: maximum gradient reductions in flight during backward.
  std::size_t reductions = 4;
};

/// Steps of sharded data-parallel training with emulated compute and real communication (ZeRO:
/// Rajbhandari et al., arXiv:1910.02054, section 5). Units of gradients are reduce-scattered as
/// backward completes them, and the optimizer steps on this rank's part as soon as it arrives.
/// Parameters are gathered for the layers of the next forward, and in stage 3 for backward too.
/// A unit that is needed sooner has a higher priority.
class EmulatedZero final : public EmulatedSteps {
 public:
  /// All but the options must outlive it; `trace` may be null.
  EmulatedZero(const LayerProfile& profile, const ZeroUnits& units,
               const EmulatedZeroOptions& options, ShardExchange& exchange, Alarm& alarm,
               TraceRecorder* trace = nullptr);

  void step() override;
  void finish() override;
  const EmulatedDevice& device() const override { return device_; }
  EmulatedMemory memory() const override {
    return {parameters_->peak_bytes(), gradients_.peak_bytes()};
  }

 private:
  void forward(std::size_t layer);
  void backward(std::size_t layer);
  void use_parameters();
  bool make_gradients(std::size_t layer);
  void reduce_gradients(std::size_t layer);
  void step_arrived_units();
  bool step_unit(std::size_t unit);
  void compute(double share);

  const LayerProfile& profile_;
  const ZeroUnits& units_;
  EmulatedZeroOptions options_;
  ShardExchange& exchange_;
  TraceRecorder* trace_;
  EmulatedDevice device_;
  LayerVisits visits_;
  ZeroGradients gradients_;
  std::unique_ptr<ZeroParameters> parameters_;
  std::int64_t visit_ = 0;                ///< Next layer visit (LayerVisits).
  std::vector<std::int64_t> reduced_at_;  ///< By unit: the visit after which its reduction started.
  float read_ = 0;
};

}  // namespace gradwire
