#pragma once

#include <concepts>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/autograd_graph.h"
#include "gradwire/host/group.h"
#include "gradwire/host/no_sync.h"
#include "gradwire/step/step_stats.h"
#include "gradwire/train/activation/await_parameters.h"

namespace gradwire {

class TrainingHost;

/// A module that is trained on several ranks: reports its forwards and blocks to a TrainingHost.
/// The part of DataParallel and Zero that does not depend on the module's type.
class DistributedModule : public BlockObserver {
 public:
  TrainingHost& host() const { return *host_; }

  /// Throws Exception(invalid_argument) if the module has a trainable parameter that the host does
  /// not know: it would be trained by each rank alone, or not at all.
  void before_forward(const torch::nn::Module& module);
  void after_forward(const std::vector<torch::Tensor>& outputs);
  bool needs_outputs() const;
  void before_block(const torch::nn::Module& block) override;
  void after_block(const torch::nn::Module& block,
                   const std::vector<torch::Tensor>& outputs) override;

  // The host's.
  void finish();
  void abandon_step();
  void synchronize_buffers();
  SyncControl& sync_control() const;
  int rank() const;
  int size() const;
  const ProcessGroup& group() const;
  step::StepStats stats() const;

 protected:
  /// Called once, by the constructor of the class that owns the host.
  void set_host(TrainingHost& host) { host_ = &host; }
  /// Further checks of a forward in training.
  virtual void check_before_training() const {}
  /// A block that needs other units than those of its parameters.
  void set_block(const torch::nn::Module& block, std::vector<std::size_t> units);

 private:
  std::size_t id_of(const torch::nn::Module& block);

  TrainingHost* host_ = nullptr;
  std::mutex mutex_;  ///< Backward runs blocks again, on autograd's threads.
  std::unordered_map<const torch::nn::Module*, std::size_t> blocks_;  ///< BlockIds.
};

/// Checks that all ranks have the same tensors, then gives all of them rank 0's values. Throws
/// Exception(mismatch) on behalf of `who`. Collective.
void broadcast_model(const std::string& who, const ProcessGroup& group,
                     std::vector<NamedTensor> parameters, const std::vector<NamedTensor>& buffers);

/// The part of DataParallel and Zero that depends on the module's type. `Core` is a
/// DistributedModule.
template <class Module, class Core>
class DistributedModel {
 public:
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

  /// Completes the pending step. All parameters then have the values of a run without overlap.
  void finish() { core_->finish(); }

  /// Drops the gradients of all backwards since the last step, in place of step(): codecs, buffers
  /// and random number generators are again as after it. Call on all ranks. Requires the option
  /// can_abandon.
  void abandon_step() { core_->abandon_step(); }

  /// Gradient accumulation: a backward of a forward inside does not complete the mean. See NoSync.
  NoSync no_sync() { return NoSync(sync_control()); }
  SyncControl& sync_control() { return core_->sync_control(); }

  /// Broadcasts rank 0's buffers to all ranks. Collective.
  void synchronize_buffers() { core_->synchronize_buffers(); }

  /// Access to the wrapped module: model->parameters(), model->eval(), ... Completes the pending
  /// step.
  auto* operator->() { return &*module(); }
  Module& module() {
    core_->finish();
    return module_;
  }

  Core& core() { return *core_; }
  const Core& core() const { return *core_; }
  TrainingHost& host() const { return core_->host(); }

  int rank() const { return core_->rank(); }
  int world_size() const { return core_->size(); }
  const ProcessGroup& process_group() const { return core_->group(); }

  /// Accumulated cost of communication. All zero if the world size is 1.
  step::StepStats stats() const { return core_->stats(); }

 protected:
  static constexpr bool kSequential =
      std::derived_from<std::remove_cvref_t<decltype(*std::declval<Module&>())>,
                        torch::nn::SequentialImpl>;

  template <class Options>
  DistributedModel(Module module, const Options& options)
      : module_(std::move(module)), core_(std::make_unique<Core>(*module_, options, kSequential)) {}

 private:
  template <class... Arguments>
  auto run(Arguments&&... arguments) {
    const BlockScope scope(core_.get());
    if constexpr (kSequential) {
      return forward_by_children(*module_, std::forward<Arguments>(arguments)...);
    } else {
      return module_->forward(std::forward<Arguments>(arguments)...);
    }
  }

  Module module_;
  std::unique_ptr<Core> core_;
};

}  // namespace gradwire
