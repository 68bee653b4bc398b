#include <utility>
#include <vector>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/checkpoint/module_state.h"
#include "gradwire/train/pipeline/replicated_gradients.h"
#include "gradwire/train/pipeline/stage_update.h"

namespace gradwire {
namespace {

/// One optimizer for the stage, whose steps the versions of the weights surround.
///
/// Replicas cannot deadlock. An update waits for the backwards before the same update in all
/// replicas, and what a replica computes before those depends on no updates but earlier ones: of
/// earlier steps, and of later stages in the same step.
class AsynchronousUpdate final : public ReplicatedGradients {
 public:
  AsynchronousUpdate(StageModule& module, WeightMethod method, const StagePlace& place,
                     const DataParallelism& data, const OptimizerFactory& optimizer)
      : ReplicatedGradients(module, data, nullptr),
        optimizer_(optimizer_of(module, optimizer)),
        weights_(make_stage_weights(method, place, module, optimizer_.get())),
        trace_(data.options.trace),
        state_(module, optimizer_ ? std::vector{optimizer_.get()}
                                  : std::vector<torch::optim::Optimizer*>{}) {}

  BlockObserver* observer() override { return nullptr; }
  SquaredNorms squared_norms() override {
    refuse("an asynchronous pipeline cannot clip by the norm of all gradients");
  }

  void step(BeforeStep before, double /*factor*/) override {
    if (!optimizer_) return;
    wait_for_gradients();
    const TraceScope scope(trace_, TraceKind::optimizer);
    if (before) before(*optimizer_);
    if (weights_) weights_->begin_update();
    optimizer_->step();
    if (weights_) weights_->end_update();
    optimizer_->zero_grad();
  }
  Checkpointable& state() override { return state_; }
  StageWeights* weights() override { return weights_.get(); }

 private:
  static std::unique_ptr<torch::optim::Optimizer> optimizer_of(const StageModule& module,
                                                               const OptimizerFactory& factory) {
    const auto parameters = trainable_parameters(module);
    return parameters.empty() ? nullptr : factory(parameters);
  }

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<StageWeights> weights_;
  TraceRecorder* trace_;
  ModuleState state_;
};

}  // namespace

std::unique_ptr<StageUpdate> make_asynchronous_update(StageModule& module, WeightMethod method,
                                                      const StagePlace& place,
                                                      const DataParallelism& data,
                                                      const OptimizerFactory& optimizer) {
  return std::make_unique<AsynchronousUpdate>(module, method, place, data, optimizer);
}

}  // namespace gradwire
