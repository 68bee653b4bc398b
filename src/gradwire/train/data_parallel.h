#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/gradient/defaults.h"
#include "gradwire/train/await_parameters.h"
#include "gradwire/train/bucket_steps.h"
#include "gradwire/train/gradient_reducer.h"
#include "gradwire/train/group.h"
#include "gradwire/train/no_sync.h"
#include "gradwire/train/output_tensors.h"

namespace gradwire {

/// The first five named as in PyTorch's DistributedDataParallel, whose meaning they have. All must
/// be the same on every rank.
struct DataParallelOptions {
  ProcessGroup process_group;  ///< gradwire::init(), or any other c10d group. Required.
  /// In 2^20 bytes; the first bucket and the last are smaller (gradient/defaults.h). Not PyTorch's
  /// 25, behind whose last bucket nothing hides.
  double bucket_cap_mb = kBucketMegabytes;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  /// With it, step() steps. `full` overlap needs it.
  OptimizerFactory optimizer = nullptr;
  Overlap overlap = Overlap::backward;
  /// Module::forward calls await_parameters() for each block before it uses it. A Sequential need
  /// not: its children are awaited one by one. Otherwise forward waits for the whole step.
  bool forward_awaits = false;
  /// How gradients travel: "none", "int8", "top_k:0.01", ... (AveragerOptions::codec). Others than
  /// "none" need a group of gradwire's own, and lose something: docs/compression.md.
  std::string codec = "none";
  /// Smaller tensors, and vectors, travel as they are.
  std::size_t codec_min_elements = kCodecMinElements;
  int codec_warmup_steps = 0;  ///< AveragerOptions::warmup_steps.
  std::uint64_t codec_seed = 1;
  bool check_finite = false;  ///< A gradient that is not finite is an error that names it.
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  TraceRecorder* trace = nullptr;  ///< Gets what travels when, and optimisers; must outlive this.
};

/// What DataParallel does that does not depend on the module's type.
class DataParallelCore : public Synchronising {
 public:
  /// Checks that all ranks have the same parameters and buffers, then gives them rank 0's values.
  DataParallelCore(torch::nn::Module& module, const DataParallelOptions& options, bool sequential);
  ~DataParallelCore();

  void before_forward(const torch::nn::Module& module);
  void after_forward(const std::vector<torch::Tensor>& outputs);
  void synchronise_buffers();
  void step(BeforeStep before);
  void finish() { steps_->finish(); }

  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }
  const ProcessGroup& group() const { return group_; }
  bool needs_outputs() const { return reducer_ && (find_unused_ || steps_->pending()); }
  BucketSteps* steps() { return steps_.get(); }
  GradientReducer* reducer() { return reducer_.get(); }
  ReducerStats stats() const;

 private:
  void require_stepped(const std::vector<torch::Tensor>& outputs) const;

  ProcessGroup group_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  bool broadcast_buffers_;
  bool find_unused_;
  bool forward_awaits_;
  std::shared_ptr<const Clock> clock_;
  TraceRecorder* trace_;
  Duration buffer_time_{};
  std::unique_ptr<GradientReducer> reducer_;  ///< None in a world of one.
  std::unique_ptr<BucketSteps> steps_;
};

/// Trains one module on several ranks, each with its part of the batch: after backward, every
/// parameter's gradient is the mean over ranks, so that the ranks' optimisers make the same step.
/// `Module` is what one calls forward on: a TORCH_MODULE holder or a std::shared_ptr to a module.
/// It may be on an accelerator (docs/library.md): everything happens in the order of streams there.
///
///     gradwire::DataParallel model(Net(), {.process_group = gradwire::init()});
///     auto loss = torch::nll_loss(model(inputs), targets);   // means over this rank's part
///     loss.backward();                                       // communicates while it computes
///     optimizer.step();
///
/// With an optimiser of its own for each bucket, communication also hides behind the next forward:
///
///     gradwire::DataParallel model(net, {.process_group = group, .optimizer = make_sgd,
///                                        .overlap = gradwire::Overlap::full});
///     ...
///     loss.backward();
///     model.step();   // of what has come; the rest when forward needs it. Clears the gradients.
///
/// The parameters after any number of steps are the same, bit for bit. finish() completes the last
/// one: forward, `model->` and `model.module()` call it by themselves where they must; call it
/// before reading parameters by other ways.
///
/// As with DistributedDataParallel: every rank must run the same sequence of forward and backward;
/// the module's parameters must not be added, removed or frozen afterwards; create it before the
/// optimiser reads the parameters. In training mode (and with gradients on) forward first takes
/// rank 0's buffers; in eval mode it does not communicate, so that ranks may evaluate different
/// numbers of batches: call synchronise_buffers() before if the buffers matter. In a world of one
/// there is no communication. Errors: Exception, on all ranks; the communicator is then dead. Not
/// thread-safe.
template <class Module>
class DataParallel {
  static constexpr bool kSequential =
      std::derived_from<std::remove_cvref_t<decltype(*std::declval<Module&>())>,
                        torch::nn::SequentialImpl>;

 public:
  explicit DataParallel(Module module, const DataParallelOptions& options)
      : module_(std::move(module)),
        core_(std::make_unique<DataParallelCore>(*module_, options, kSequential)) {}

  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    core_->before_forward(*module_);
    auto output = run(std::forward<Arguments>(arguments)...);
    if (core_->needs_outputs()) {
      core_->after_forward(output_tensors(output));
    } else {
      core_->after_forward({});
    }
    return output;
  }

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// Steps DataParallelOptions::optimizer with the gradients of the last backward, and clears them.
  /// `before` is called for each bucket's optimiser before it steps, which may be as late as in the
  /// next forward: it sets the learning rate. Throws Exception(invalid_argument) without an
  /// optimiser.
  void step(BeforeStep before = nullptr) { core_->step(std::move(before)); }

  /// Completes the step under way: all parameters are then what an unoverlapped run's are.
  void finish() { core_->finish(); }

  /// Accumulation: see NoSync.
  NoSync no_sync() { return NoSync(*core_); }

  /// Gives all ranks rank 0's buffers now. Collective.
  void synchronise_buffers() { core_->synchronise_buffers(); }

  /// The wrapped module's own members: model->parameters(), model->eval(), ...
  auto* operator->() { return &*module(); }
  Module& module() {
    core_->finish();
    return module_;
  }

  DataParallelCore& core() { return *core_; }

  int rank() const { return core_->rank(); }
  int world_size() const { return core_->size(); }
  const ProcessGroup& process_group() const { return core_->group(); }

  /// What communication has cost so far. All zero in a world of one.
  ReducerStats stats() const { return core_->stats(); }

 private:
  template <class... Arguments>
  auto run(Arguments&&... arguments) {
    const BlockScope scope(core_->steps());
    if constexpr (kSequential) {
      return forward_by_children(*module_, std::forward<Arguments>(arguments)...);
    } else {
      return module_->forward(std::forward<Arguments>(arguments)...);
    }
  }

  Module module_;
  std::unique_ptr<DataParallelCore> core_;
};

}  // namespace gradwire
