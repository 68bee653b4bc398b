#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <torch/torch.h>

#include "gradwire/train/await_parameters.h"
#include "gradwire/train/output_tensors.h"
#include "gradwire/train/zero/zero_core.h"

namespace gradwire {

/// Trains one module on several ranks, as DataParallel does, with optimiser states (stage 1),
/// gradients (2) and parameters (3) spread over them: each rank keeps and steps one part in P
/// (Rajbhandari et al., arXiv:1910.02054; stages 1 to 3 are its P_os, P_os+g, P_os+g+p). The
/// parameters after any number of steps are DataParallel's, with the same bits where sums are taken
/// in the same order. `Module` as DataParallel's.
///
///     gradwire::Zero model(net, {.process_group = group, .stage = 3, .optimizer = make_adam});
///     auto loss = torch::nll_loss(model(inputs), targets);   // means over this rank's part
///     loss.backward();                                       // communicates while it computes
///     model.step();                                          // and clears the gradients
///
/// In stage 3 parameters are fetched block by block, just before use and the next one's meanwhile,
/// and dropped after it, in forward and in backward. Blocks are the children of a Sequential, and
/// members declared Block<Holder> (await_parameters.h); what is in no block is there from forward's
/// beginning to backward's end. Between, and for whoever goes round the Zero, the parameters are
/// not there: reading one is an error that names it. consolidate() brings them all.
///
/// Gradients are not to be seen on the parameters: they are taken away as they come (stage 1: but
/// for those accumulated under no_sync(); of 16 bits those too, and zero_grad() does not take them
/// back). A parameter that backward does not come to has a gradient of zero. Parameters that need
/// no gradient, and buffers, stay whole on every rank.
///
/// Every rank runs the same sequence of blocks, forward, backward and step, evaluation with stage 3
/// included (unless consolidated). Errors: Exception, on all ranks; the communicator is then dead.
/// Not thread-safe.
template <class Module>
class Zero {
  static constexpr bool kSequential =
      std::derived_from<std::remove_cvref_t<decltype(*std::declval<Module&>())>,
                        torch::nn::SequentialImpl>;

 public:
  explicit Zero(Module module, const ZeroOptions& options)
      : module_(std::move(module)),
        core_(std::make_unique<ZeroCore>(*module_, options, kSequential)) {}

  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    core_->before_forward(*module_);
    auto output = run(std::forward<Arguments>(arguments)...);
    core_->after_forward(output_tensors(output));
    return output;
  }

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// Steps with the gradients of the backwards since the last step, and clears them. `before` is
  /// called for each unit's optimiser before it steps, which may be as late as in the next forward:
  /// it sets the learning rate. With a `scaler` (of losses in float16), gradients are divided by
  /// its scale, and if one is not finite on any rank no rank steps: false. Collective with a
  /// scaler, a max_grad_norm, Lars or Lamb.
  bool step(BeforeStep before = nullptr, LossScaler* scaler = nullptr) {
    return core_->step(std::move(before), scaler);
  }

  /// Completes the step under way.
  void finish() { core_->finish(); }

  /// Completes the step, and brings all parameters to every rank (in the precision that they are
  /// computed in), to be read, or evaluated with on any number of batches, until the next training
  /// forward. Collective.
  void consolidate() { core_->consolidate(); }

  /// What backward brings is not averaged yet but accumulated. In stages 2 and 3 that is over
  /// ranks, too: it costs a reduction each time, and no memory for all gradients.
  NoSync no_sync() { return NoSync(*core_); }

  /// Gives all ranks rank 0's buffers now. Collective.
  void synchronise_buffers() { core_->synchronise_buffers(); }

  /// This rank's parts, live: to save, and to load into (then loaded()).
  std::vector<TensorPiece> pieces(bool make_states = false) { return core_->pieces(make_states); }
  void loaded() { core_->loaded(); }

  /// The wrapped module. In stage 3 its parameters are there only after consolidate().
  auto* operator->() { return &*module(); }
  Module& module() {
    core_->finish();
    return module_;
  }

  ZeroCore& core() { return *core_; }

  int rank() const { return core_->rank(); }
  int world_size() const { return core_->size(); }
  const ProcessGroup& process_group() const { return core_->group(); }

  /// Of the last step's gradients, before they were scaled down, if there is a max_grad_norm.
  double gradient_norm() const { return core_->gradient_norm(); }

  /// What communication has cost so far. All zero in a world of one.
  ReducerStats stats() const { return core_->stats(); }

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
  std::unique_ptr<ZeroCore> core_;
};

}  // namespace gradwire
