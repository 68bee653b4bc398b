#include "gradwire/train/pipeline/stage_update.h"

#include <map>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/train/checkpoint/module_state.h"
#include "gradwire/train/named_tensor.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/pipeline/replicated_gradients.h"
#include "gradwire/train/zero/zero_core.h"

namespace gradwire {
namespace {

double squared_norm(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const auto norm = torch::linalg_vector_norm(tensor, 2, {}, false, torch::kFloat64).item<double>();
  return norm * norm;
}

/// Each bucket has an optimizer, which steps when the next forward reaches its layers.
class ReplicatedUpdate final : public ReplicatedGradients {
 public:
  ReplicatedUpdate(StageModule& module, const DataParallelism& data,
                   const OptimizerFactory& optimizer)
      : ReplicatedGradients(module, data, optimizer),
        parameters_(trainable_parameters(module)),
        boxes_(parameter_boxes(module)),
        state_(module, optimizers()) {}

  BlockObserver* observer() override { return &replicated(); }

  SquaredNorms squared_norms() override {
    wait_for_gradients();
    SquaredNorms squares;
    for (const auto& [name, tensor] : parameters_) {
      const auto box = boxes_.find(name);
      const bool is_divided = box != boxes_.end();
      const bool counts = !is_divided || !box->second.replica;
      const double square = counts ? squared_norm(tensor.grad()) : 0;
      squares.replicated.push_back(is_divided ? 0 : square);
      squares.divided.push_back(is_divided ? square : 0);
    }
    return squares;
  }

  void step(BeforeStep before, double factor) override {
    if (factor != 1) {
      wait_for_gradients();
      for (const auto& [name, tensor] : parameters_) {
        if (tensor.grad().defined()) tensor.mutable_grad().mul_(factor);
      }
    }
    replicated().begin_step(std::move(before));
  }
  Checkpointable& state() override { return state_; }

 private:
  std::vector<torch::optim::Optimizer*> optimizers() {
    std::vector<torch::optim::Optimizer*> all;
    for (const auto& each : replicated().optimizers()) all.push_back(each.get());
    return all;
  }

  std::vector<NamedTensor> parameters_;
  std::map<std::string, ParameterBox> boxes_;
  ModuleState state_;
};

/// Optimizer states, gradients and parameters are sharded over the replicas.
class ShardedUpdate final : public StageUpdate {
 public:
  ShardedUpdate(StageModule& module, const DataParallelism& data, const OptimizerFactory& optimizer)
      : module_(module),
        parameters_(trainable_parameters(module).size()),
        boxes_(parameter_boxes(module)),
        core_(module,
              {.process_group = data.process_group,
               .stage = data.zero_stage,
               .optimizer = optimizer,
               .codec = data.codec,
               .bucket_cap_mb = data.bucket_cap_mb,
               .forward_awaits = true,
               .broadcast_buffers = false,
               .blocks = module.children()},
              /*sequential=*/false) {}

  void before_forward() override { core_.before_forward(module_); }
  void after_forward(const std::vector<torch::Tensor>& outputs) override {
    core_.after_forward(outputs);
  }
  BlockObserver* observer() override { return &core_; }
  // The core counts the end of an execution of the graph as the end of backward.
  bool splits_backward() const override { return false; }
  void before_backward(bool last) override {
    core_.set_synchronizes(last);
    core_.expect_backward();
  }

  void wait_for_gradients() override {
    refuse("tied parameters need the whole gradients of a stage, but ZeRO shards them");
  }
  SquaredNorms squared_norms() override {
    SquaredNorms squares{std::vector<double>(parameters_, 0), std::vector<double>(parameters_, 0)};
    if (parameters_ == 0) return squares;
    if (boxes_.empty()) {
      squares.replicated.front() = core_.squared_norm();
      return squares;
    }
    squares.replicated.front() =
        core_.squared_norm_of([this](const std::string& name) { return !boxes_.contains(name); });
    squares.divided.front() = core_.squared_norm_of([this](const std::string& name) {
      const auto box = boxes_.find(name);
      return box != boxes_.end() && !box->second.replica;
    });
    return squares;
  }
  void step(BeforeStep before, double factor) override {
    core_.step_scaled(std::move(before), factor);
  }
  void finish() override { core_.finish(); }
  void synchronize_buffers() override { core_.synchronize_buffers(); }
  Checkpointable& state() override { return core_; }

 private:
  StageModule& module_;
  std::size_t parameters_;
  std::map<std::string, ParameterBox> boxes_;
  ZeroCore core_;
};

}  // namespace

std::unique_ptr<StageUpdate> make_stage_update(StageModule& module, const DataParallelism& data,
                                               const OptimizerFactory& optimizer) {
  if (data.zero_stage < 0 || data.zero_stage > 3) {
    refuse("zero_stage {}: expected 0 (replicas), 1, 2 or 3", data.zero_stage);
  }
  if (data.zero_stage == 0) return std::make_unique<ReplicatedUpdate>(module, data, optimizer);
  return std::make_unique<ShardedUpdate>(module, data, optimizer);
}

}  // namespace gradwire
