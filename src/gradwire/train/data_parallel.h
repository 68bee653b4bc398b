#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/train/gradient_reducer.h"
#include "gradwire/train/group.h"
#include "gradwire/train/output_tensors.h"

namespace gradwire {

/// Named as in PyTorch's DistributedDataParallel, whose meaning they have.
struct DataParallelOptions {
  ProcessGroup process_group;  ///< gradwire::init(), or any other c10d group. Required.
  double bucket_cap_mb = 25;   ///< In 2^20 bytes; the first bucket is at most 1.
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
};

/// What DataParallel does that does not depend on the module's type.
class DataParallelCore {
 public:
  /// Checks that all ranks have the same parameters and buffers, then gives them rank 0's values.
  DataParallelCore(torch::nn::Module& module, const DataParallelOptions& options);

  void before_forward(const torch::nn::Module& module);
  void after_forward(const std::vector<torch::Tensor>& outputs);
  void synchronise_buffers();

  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }
  const ProcessGroup& group() const { return group_; }
  bool synchronises() const { return synchronise_; }
  void set_synchronises(bool yes) { synchronise_ = yes; }
  bool needs_outputs() const { return reducer_ && find_unused_; }
  ReducerStats stats() const;

 private:
  ProcessGroup group_;
  std::vector<NamedTensor> buffers_;
  bool broadcast_buffers_;
  bool find_unused_;
  bool synchronise_ = true;
  std::shared_ptr<const Clock> clock_;
  Duration buffer_time_{};
  std::unique_ptr<GradientReducer> reducer_;  ///< None in a world of one.
};

/// Gradients just accumulate on each rank for as long as it lives: forward and backward of all but
/// the last of several accumulated batches belong inside.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(DataParallelCore& core) : core_(core), before_(core.synchronises()) {
    core_.set_synchronises(false);
  }
  ~NoSync() { core_.set_synchronises(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DataParallelCore& core_;
  bool before_;
};

/// Trains one module on several ranks, each with its part of the batch: after backward, every
/// parameter's gradient is the mean over ranks, so that the ranks' optimisers make the same step.
/// `Module` is what one calls forward on: a TORCH_MODULE holder or a std::shared_ptr to a module.
///
///     gradwire::DataParallel model(Net(), {.process_group = gradwire::init()});
///     auto loss = torch::nll_loss(model(inputs), targets);   // means over this rank's part
///     loss.backward();                                       // communicates while it computes
///     optimizer.step();
///
/// As with DistributedDataParallel: every rank must run the same sequence of forward and backward;
/// the module's parameters must not be added, removed or frozen afterwards; create it before the
/// optimiser reads the parameters. In training mode (and with gradients on) forward first takes
/// rank 0's buffers; in eval mode it does not communicate, so that ranks may evaluate different
/// numbers of batches: call synchronise_buffers() before if the buffers matter. In a world of one
/// all this does nothing. Errors: Exception, on all ranks; the communicator is then dead.
/// Not thread-safe.
template <class Module>
class DataParallel {
 public:
  explicit DataParallel(Module module, const DataParallelOptions& options)
      : module_(std::move(module)), core_(std::make_unique<DataParallelCore>(*module_, options)) {}

  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    core_->before_forward(*module_);
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
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

  /// Accumulation: see NoSync.
  NoSync no_sync() { return NoSync(*core_); }

  /// Gives all ranks rank 0's buffers now. Collective.
  void synchronise_buffers() { core_->synchronise_buffers(); }

  /// The wrapped module's own members: model->parameters(), model->eval(), ...
  auto* operator->() { return &*module_; }
  Module& module() { return module_; }

  DataParallelCore& core() { return *core_; }

  int rank() const { return core_->rank(); }
  int world_size() const { return core_->size(); }
  const ProcessGroup& process_group() const { return core_->group(); }

  /// What communication has cost so far. All zero in a world of one.
  ReducerStats stats() const { return core_->stats(); }

 private:
  Module module_;
  std::unique_ptr<DataParallelCore> core_;
};

}  // namespace gradwire
