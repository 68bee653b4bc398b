#include "gradwire/train/pipeline/stage_update.h"

#include <map>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/host/training_host.h"
#include "gradwire/train/checkpoint/module_state.h"
#include "gradwire/train/optim/clipping.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/pipeline/replicated_gradients.h"
#include "gradwire/train/zero/zero_module.h"

namespace gradwire {
namespace {

/// `square`: returns the squared norm of a parameter's gradient.
template <class Square>
SquaredNorms by_division(const std::vector<NamedTensor>& parameters,
                         const std::map<std::string, ParameterBox>& boxes, const Square& square) {
  SquaredNorms squares;
  for (const NamedTensor& parameter : parameters) {
    const auto box = boxes.find(parameter.name);
    const bool is_divided = box != boxes.end();
    const bool counts = !is_divided || !box->second.replica;
    const double own = counts ? square(parameter) : 0;
    squares.replicated.push_back(is_divided ? 0 : own);
    squares.divided.push_back(is_divided ? own : 0);
  }
  return squares;
}

/// Each bucket has an optimizer, which steps when the next forward reaches its layers.
class ReplicatedUpdate final : public ReplicatedGradients {
 public:
  ReplicatedUpdate(StageModule& module, const DataParallelism& data,
                   const OptimizerFactory& optimizer)
      : ReplicatedGradients(module, data, optimizer),
        parameters_(trainable_parameters(module)),
        boxes_(parameter_boxes(module)),
        state_(module, core().optimizers()) {}

  BlockObserver* observer() override { return &core(); }

  SquaredNorms squared_norms() override {
    wait_for_gradients();
    return by_division(parameters_, boxes_, [](const NamedTensor& parameter) {
      return square_of(parameter.tensor.grad());
    });
  }

  void step(BeforeStep before, double factor) override { core().step(std::move(before), factor); }
  Checkpointable& state() override { return state_; }

 private:
  std::vector<NamedTensor> parameters_;
  std::map<std::string, ParameterBox> boxes_;
  ModuleState state_;
};

/// Optimizer states, gradients and parameters are sharded over the replicas.
class ShardedUpdate final : public StageUpdate {
 public:
  ShardedUpdate(StageModule& module, const DataParallelism& data, const OptimizerFactory& optimizer,
                const std::vector<torch::Tensor>& tied)
      : module_(module),
        parameters_(trainable_parameters(module)),
        boxes_(parameter_boxes(module)),
        tied_(tied),
        core_(module, options_for(module, data, optimizer, tied), /*sequential=*/false) {}

  void before_forward() override { core_.before_forward(module_); }
  void after_forward(const std::vector<torch::Tensor>& outputs) override {
    core_.after_forward(outputs);
  }
  BlockObserver* observer() override { return &core_; }
  // The core counts the end of an execution of the graph as the end of backward.
  bool splits_backward() const override { return false; }

  void wait_for_gradients() override {
    for (const torch::Tensor& parameter : tied_) core_.gradient_shard(parameter);
  }
  torch::Tensor own_gradient(const torch::Tensor& parameter) override {
    return core_.gradient_shard(parameter);
  }
  torch::Tensor own_values(const torch::Tensor& parameter) override {
    // Frozen parameters are not sharded.
    return parameter.requires_grad() ? core_.value_shard(parameter) : parameter.detach();
  }
  SquaredNorms squared_norms() override {
    const std::map<std::string, double> norms = core_.squared_norms();
    return by_division(parameters_, boxes_,
                       [&](const NamedTensor& parameter) { return norms.at(parameter.name); });
  }
  void step(BeforeStep before, double factor) override {
    core_.step_scaled(std::move(before), factor);
  }
  Checkpointable& state() override { return core_; }
  TrainingHost& host() const override { return core_.host(); }

 private:
  static ZeroOptions options_for(const StageModule& module, const DataParallelism& data,
                                 const OptimizerFactory& optimizer,
                                 const std::vector<torch::Tensor>& tied) {
    ZeroOptions options = data.options;
    options.process_group = data.process_group;
    options.stage = data.zero_stage;
    options.optimizer = optimizer;
    options.forward_awaits = true;
    options.broadcast_buffers = false;
    options.blocks = module.children();
    options.own_units = tied;
    return options;
  }

  StageModule& module_;
  std::vector<NamedTensor> parameters_;
  std::map<std::string, ParameterBox> boxes_;
  std::vector<torch::Tensor> tied_;
  ZeroModule core_;
};

}  // namespace

torch::Tensor StageUpdate::own_gradient(const torch::Tensor& parameter) {
  torch::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) gradient = torch::zeros_like(parameter);
  return gradient;
}

torch::Tensor StageUpdate::own_values(const torch::Tensor& parameter) {
  return parameter.detach();
}

std::unique_ptr<StageUpdate> make_stage_update(StageModule& module, const DataParallelism& data,
                                               const OptimizerFactory& optimizer,
                                               const std::vector<torch::Tensor>& tied) {
  if (data.zero_stage < 0 || data.zero_stage > 3) {
    refuse("zero_stage {}: expected 0 (replicas), 1, 2 or 3", data.zero_stage);
  }
  if (data.zero_stage == 0) return std::make_unique<ReplicatedUpdate>(module, data, optimizer);
  return std::make_unique<ShardedUpdate>(module, data, optimizer, tied);
}

}  // namespace gradwire
