#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gradwire/base/clock.h"
#include "gradwire/exchange/make_exchange.h"
#include "gradwire/host/gradient_hooks.h"
#include "gradwire/host/group.h"
#include "gradwire/host/no_sync.h"
#include "gradwire/host/restore_point.h"
#include "gradwire/host/training_errors.h"
#include "gradwire/host/unit_memory.h"
#include "gradwire/host/unit_optimizer.h"
#include "gradwire/host/unit_steps.h"
#include "gradwire/host/unused_parameters.h"
#include "gradwire/step/step_engine.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

struct TrainingHostOptions {
  std::string who;  ///< Begins errors.
  step::StepPolicy policy;
  exchange::ExchangeOptions exchange;
  /// Makes the exchange of units of these shapes. Null: over the group. Otherwise the caller sets
  /// policy.ranks.
  std::function<std::unique_ptr<exchange::Exchange>(std::vector<exchange::UnitShape>)>
      make_exchange;
  /// True if before_block() is called for each block of a forward. Otherwise before_forward() waits
  /// for the whole step.
  bool forward_awaits = false;
  bool broadcast_buffers = true;  ///< Each forward in training mode broadcasts them.
  /// Unless gradients are taken: a backward need not reach every parameter.
  bool find_unused = false;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  TraceRecorder* trace = nullptr;  ///< Records traffic and optimizer steps; may be null.
};

/// Training steps of a model on several ranks: what autograd and forward report drives the step
/// engine. It knows tensors and blocks by number, but no modules, and whatever optimizer it is
/// given. Data parallelism and ZeRO differ in the memory. The phases of a step:
///
/// before_forward, (before_block, after_block)..., after_forward -> backward: gradients go to their
///     units, complete units are reduced in order -> begin_step: each unit waits for its mean, and
///     steps
///
/// Errors: throws Exception on all ranks; the group is unusable afterwards.
///
/// Not movable: autograd's hooks refer to this object and run on autograd's threads. Otherwise not
/// thread-safe.
class TrainingHost : public SyncControl, private GradientListener {
 public:
  using BlockId = std::size_t;

  /// `memory` and `optimizer`, which may be null (gradients are averaged, and not stepped), must
  /// outlive this. `buffers` are the same on all ranks but in value. Collective.
  TrainingHost(ProcessGroup group, UnitMemory& memory, UnitOptimizer* optimizer,
               std::vector<NamedTensor> buffers, TrainingHostOptions options);
  ~TrainingHost() override;

  /// Adds a block that needs these units.
  BlockId add_block(std::vector<std::size_t> units);
  /// The unit of a parameter; nullopt if it is none of the model's.
  std::optional<std::size_t> unit_of(const at::Tensor& parameter) const;

  /// `training_mode`: the model's. Broadcasts buffers, and waits for the pending step unless blocks
  /// do.
  void before_forward(bool training_mode);
  void before_block(BlockId block);
  /// `outputs`: the tensors that the block returned; empty if they are unknown.
  void after_block(BlockId block, const std::vector<at::Tensor>& outputs);
  /// Completes the steps of units that forward did not use. `outputs` are where backward starts;
  /// only needed if needs_outputs(). With gradients enabled, expects a backward.
  void after_forward(const std::vector<at::Tensor>& outputs);
  bool needs_outputs() const;
  /// after_forward() for a backward that does not belong to the last forward, as in a pipeline, in
  /// which several micro-batches are under way. synchronizes(): it completes the mean over ranks.
  /// Throws Exception(invalid_argument) if an earlier backward did not end.
  void expect_backward(const std::vector<at::Tensor>& outputs = {});

  /// Starts one step of the optimizer with `factor` times the gradients, after which they are
  /// cleared. Runs at once if no gradient is in flight, otherwise as units are awaited.
  void begin_step(double factor = 1);
  /// begin_step(), in the next backward that completes the mean.
  void step_in_backward();
  /// Drops the gradients since the last step, in place of begin_step(). The exchange's state, the
  /// buffers and the default random number generators are again as begin_step() left them, so that
  /// a repeated step has the same bits. Completes the pending step first. On all ranks, or none.
  /// Throws Exception(invalid_argument) without ExchangeOptions::can_abandon.
  void abandon_step();
  /// Completes the pending step, if there is one.
  void finish_step();
  /// Completes the pending step, and waits for all reductions of replicated gradients.
  void finish();
  /// Waits for the means of all units, or of one.
  void wait_for_means();
  void wait_for_mean(std::size_t unit);
  /// Returns true if gradients are in flight or a step has not reached all units.
  bool is_pending() const;

  /// Sharded parameters: gathers all, until the next forward in training.
  void consolidate();
  /// The parameters were changed from outside.
  void invalidate();
  /// Broadcasts rank 0's buffers. Collective.
  void synchronize_buffers();

  const ProcessGroup& group() const { return group_; }
  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }
  const TrainingErrors& errors() const { return errors_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }
  /// All zero if the world size is 1.
  step::StepStats stats() const;
  /// The exchange whose state (error-feedback residuals) a checkpoint must hold. Null: none.
  /// Completes the step. Call between steps.
  exchange::Exchange* feedback();
  exchange::Exchange& exchange() { return *exchange_; }

 private:
  /// Purpose of the next backward's gradients: `sums` accumulate on this rank.
  enum class Expected : std::uint8_t { nothing, sums, means };
  using Lock = std::lock_guard<std::recursive_mutex>;

  bool in_pass() const { return engine_->reductions().in_pass(); }
  bool is_sharded() const { return options_.policy.shards_parameters(); }
  const NamedTensor& parameter(std::size_t index) const { return memory_.parameters()[index]; }
  template <class Hook>
  void hook_outputs(const std::vector<at::Tensor>& outputs, const Hook& hook);

  void on_gradient(std::size_t parameter) override;
  void on_end_of_backward() override;
  bool expects_gradients() const override { return expected_ != Expected::nothing; }
  void begin_pass();
  void mark_ready(std::size_t parameter, bool produced);
  void poison();

  void require_complete() const;
  void require_stepped(const std::vector<at::Tensor>& outputs) const;

  ProcessGroup group_;
  UnitMemory& memory_;
  UnitOptimizer* optimizer_;
  UnitSteps steps_;
  std::vector<NamedTensor> buffers_;
  TrainingHostOptions options_;
  TrainingErrors errors_;
  std::unordered_map<const void*, std::size_t> unit_of_;  ///< Units of parameters, by TensorImpl.
  std::vector<std::vector<std::size_t>> blocks_;          ///< The units of each.
  std::unique_ptr<exchange::Exchange> exchange_;
  std::unique_ptr<step::StepEngine> engine_;
  std::optional<RestorePoint> last_step_;  ///< Kept with ExchangeOptions::can_abandon.
  std::unique_ptr<GradientHooks> hooks_;   ///< Null if nothing is done with gradients.

  std::recursive_mutex mutex_;  ///< Hooks run on autograd's threads.
  std::shared_ptr<TrainingHost*> self_ = std::make_shared<TrainingHost*>(this);
  Expected expected_ = Expected::nothing;
  bool completes_mean_ = true;  ///< The expected backward does: no no_sync().
  bool announced_ = false;      ///< step_in_backward() was called.
  bool training_ = false;       ///< Autograd records the current forward.
  UnusedParameters unused_;     ///< With find_unused: since the last reduction.
  Duration buffer_time_{};
};

}  // namespace gradwire
