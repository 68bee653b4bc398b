#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/exchange/make_exchange.h"
#include "gradwire/step/step_engine.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/activation/await_parameters.h"
#include "gradwire/train/data_parallel/bucket.h"
#include "gradwire/train/gradient_hooks.h"
#include "gradwire/train/group.h"
#include "gradwire/train/named_tensor.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

struct ReplicatedStepOptions {
  step::BucketLimits buckets;
  std::set<std::string> divided;  ///< divided_parameters() of the module.
  step::Overlap overlap = step::Overlap::backward;
  bool find_unused = false;
  bool check_finite = false;           ///< Fail if a mean is not finite.
  std::size_t codec_min_elements = 0;  ///< Tensors with fewer elements are not compressed.
  exchange::ExchangeOptions exchange;
  OptimizerFactory optimizer;  ///< Null: gradients are averaged, and not stepped.
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For statistics.
  TraceRecorder* trace = nullptr;  ///< Records traffic and optimizer steps; may be null.
};

/// Training steps with replicated parameters: the torch side of the step engine in stage 0. It owns
/// the buckets, in which each parameter's gradient is a view, and an optimizer for each. The phases
/// of a step:
///
/// prepare -> backward: gradients go to their buckets, complete buckets are averaged in order ->
///     each bucket: wait for the mean, step its optimizer when begin_step() was called
///
/// Without Overlap::full the end of backward waits for all buckets, otherwise the blocks of the
/// next forward for theirs. With world size 1 there is no communication.
///
/// Not movable: autograd's hooks refer to this object and run on autograd's threads. Otherwise not
/// thread-safe.
class ReplicatedStep final : public BlockObserver,
                             private step::StepHost,
                             private GradientListener {
 public:
  ReplicatedStep(ProcessGroup group, std::vector<NamedTensor> parameters,
                 ReplicatedStepOptions options);

  /// Call after each forward. `synchronize`: backward averages over ranks, else gradients
  /// accumulate locally. `outputs` are where backward starts, for find_unused. Throws
  /// Exception(invalid_argument) if an earlier backward left parameters without a gradient.
  void prepare(const std::vector<torch::Tensor>& outputs, bool synchronize);

  /// Returns true if the tensor is one of the parameters.
  bool has(const torch::Tensor& parameter) const {
    return unit_of_.contains(parameter.unsafeGetTensorImpl());
  }

  /// Starts one step of the optimizers, after which the gradients are cleared. Runs at once if no
  /// gradient is in flight, otherwise as units are awaited.
  void begin_step(BeforeStep before);
  void before_block(const torch::nn::Module& block) override;
  void after_block(const torch::nn::Module&, const std::vector<torch::Tensor>&) override {}
  /// Waits for all reductions, and completes the pending step of all units.
  void finish();

  /// Returns true if gradients are in flight or a step has not reached all units.
  bool pending() const;
  /// Returns true if this parameter is not stepped yet.
  bool pending(const torch::Tensor& parameter) const;

  const BucketLayout& layout() const { return layout_; }
  /// One per bucket; empty without a factory.
  const std::vector<std::unique_ptr<torch::optim::Optimizer>>& optimizers() const {
    return optimizers_;
  }
  step::StepStats stats() const;
  exchange::Exchange& exchange() { return *exchange_; }

 private:
  /// Purpose of the next backward's gradients; with `sums` they accumulate locally.
  enum class Expected : std::uint8_t { nothing, sums, averages };
  using Lock = std::lock_guard<std::recursive_mutex>;

  ArgumentName name() const;
  bool is_alone() const { return group_->getSize() == 1; }
  void lay_out();
  void make_exchange();
  void make_optimizers();
  std::vector<step::StepUnit> step_units() const;

  void on_gradient(std::size_t parameter) override;
  void on_end_of_backward() override;
  bool expects_gradients() const override { return expected_ != Expected::nothing; }
  void start();
  void mark_ready(std::size_t parameter);
  void fill(std::size_t parameter);
  std::vector<std::size_t> unused() const;

  Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t unit) override;
  bool step(std::size_t unit) override;
  Parameters parameters(std::size_t) override { return {}; }
  void start_usage();
  void wait_usage();
  void assign_gradients(std::size_t unit);

  [[noreturn]] void refuse_gradient(std::size_t parameter) const;
  void require_complete() const;
  void require_finite_locally(std::size_t parameter) const;
  void require_finite(std::size_t unit) const;
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;

  ProcessGroup group_;
  std::vector<NamedTensor> parameters_;
  ReplicatedStepOptions options_;
  BucketLayout layout_;
  std::unordered_map<const void*, std::size_t> unit_of_;  ///< By TensorImpl.
  std::unique_ptr<exchange::Exchange> exchange_;
  double scale_ = 1;  ///< Factor before averaging: 1 unless the exchange can only sum.
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  BeforeStep before_;

  std::recursive_mutex mutex_;
  Expected expected_ = Expected::nothing;
  bool started_ = false;
  std::size_t missing_ = 0;  ///< Parameters that are not ready.
  std::vector<bool> ready_;
  std::vector<bool> touched_;  ///< Received a gradient since the last averaging.
  /// Graph roots of the forwards since the last averaging, from which backward may start.
  /// References are weak: a freed graph, as after an evaluation with gradients, is ignored.
  std::vector<WeakGraphNode> roots_;
  torch::Tensor usage_;         ///< Per parameter: ranks that used it, divided by the world size.
  torch::Tensor global_usage_;  ///< The same on the parameters' device, as it is reduced.
  std::unique_ptr<exchange::UnitTransfer> usage_transfer_;
  std::int64_t usage_operations_ = 0;
  std::unique_ptr<step::StepEngine> engine_;
  std::unique_ptr<GradientHooks> hooks_;  ///< Null with world size 1.
};

}  // namespace gradwire
