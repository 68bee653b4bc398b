#pragma once

#include <utility>
#include <vector>

#include "gradwire/train/distributed_module.h"
#include "gradwire/train/zero/zero_module.h"

namespace gradwire {

/// ZeRO training of one module on several ranks. In addition to data parallelism, it shards
/// optimizer states (stage 1), gradients (stage 2) and parameters (stage 3): each rank stores and
/// steps 1/P of them (Rajbhandari et al., arXiv:1910.02054; the stages are its P_os, P_os+g,
/// P_os+g+p). The parameters after any number of steps equal DataParallel's, bitwise where
/// reductions have the same order. `Module` is as in DataParallel.
///
///     gradwire::Zero model(net, {.process_group = group, .stage = 3, .optimizer = make_adam});
///     auto loss = torch::nll_loss(model(inputs), targets);   // means over this rank's part
///     loss.backward();                                       // overlaps with communication
///     model.step();                                          // and clears the gradients
///
/// In stage 3, parameters are gathered block by block in forward and in backward. Each block is
/// gathered just before use, the next one is prefetched meanwhile, and a block is freed after use.
/// Blocks are the children of a Sequential, and members declared Block<Holder>
/// (await_parameters.h). Parameters outside any block are present from the beginning of forward to
/// the end of backward. Reading a parameter that is not present fails with an error that names it;
/// this also holds for code that bypasses Zero. consolidate() gathers all parameters.
///
/// Gradients do not stay on the parameters: Zero takes each one as backward produces it. Exception:
/// in stage 1, gradients accumulated under no_sync() stay, but not 16-bit ones, which zero_grad()
/// does not clear either. A parameter that backward does not reach has a zero gradient. Parameters
/// that require no gradient, and buffers, are replicated on every rank.
///
/// Gradient accumulation (no_sync()): in stages 2 and 3 a backward inside still reduces over ranks:
/// that costs one reduction per backward, but no memory for all gradients. The wrapped module's
/// parameters are present in stage 3 only after consolidate().
///
/// Every rank must run the same sequence of blocks, forward, backward and step. In stage 3 that
/// includes evaluation, unless the parameters are consolidated.
///
/// Errors: throws Exception on all ranks; the communicator is unusable afterwards. Not thread-safe.
template <class Module>
class Zero : public DistributedModel<Module, ZeroModule> {
  using Base = DistributedModel<Module, ZeroModule>;

 public:
  using Base::core;

  explicit Zero(Module module, const ZeroOptions& options) : Base(std::move(module), options) {}

  /// Steps with the gradients accumulated since the last step, and clears them. `before` is called
  /// before each unit's optimizer steps, possibly as late as in the next forward; use it to set the
  /// learning rate. With a `scaler` (loss scaling for float16), gradients are divided by its scale.
  /// If any gradient is not finite on any rank, no rank steps and the result is false. Collective
  /// with a scaler, a max_grad_norm or a LayerwiseOptimizer.
  bool step(BeforeStep before = nullptr, LossScaler* scaler = nullptr) {
    return core().step(std::move(before), scaler);
  }

  /// Steps in place of step(), and earlier: call it before the last backward of a step. Each unit
  /// steps as soon as its mean has arrived, while backward computes the gradients of other units;
  /// its new parameters are gathered then too, in stages 1 and 2. The parameters are the same bits.
  /// Throws Exception(invalid_argument) with a max_grad_norm, Lars, Lamb or RangerLars, which need
  /// all gradients first.
  ///
  ///     auto loss = torch::nll_loss(model(inputs), targets);
  ///     model.step_in_backward();
  ///     loss.backward();
  void step_in_backward(BeforeStep before = nullptr) { core().step_in_backward(std::move(before)); }

  /// Completes the pending step and gathers all parameters on every rank, in the precision of the
  /// computation. They stay until the next training forward, for reading or for any number of
  /// evaluation batches. Collective.
  void consolidate() { core().consolidate(); }

  /// This rank's shards, by reference: save them, or load into them and then call loaded().
  std::vector<TensorPiece> pieces(bool make_states = false) { return core().pieces(make_states); }
  void loaded() { core().loaded(); }

  /// Norm of the last step's gradients before clipping. Requires a max_grad_norm or a scaler.
  double gradient_norm() const { return core().gradient_norm(); }
};

}  // namespace gradwire
