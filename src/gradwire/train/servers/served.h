#pragma once

#include <cstdint>
#include <utility>

#include "gradwire/train/distributed_module.h"
#include "gradwire/train/servers/served_module.h"

namespace gradwire {

/// Training of one module with parameter servers (Li et al., OSDI 2014): workers push gradients to
/// servers, whose optimizers step, and pull parameters. A server has the same elements of every
/// unit as a shard of ZeRO. In mode sync the parameters are those of DataParallel whose reductions
/// add in the order of ranks, bit for bit. `Module` is as in DataParallel.
///
///     auto group = gradwire::init();
///     gradwire::Served model(net, {.process_group = group, .servers = {.mode = "async"},
///                                  .optimizer = make_adagrad});
///     auto loss = torch::nll_loss(model(inputs), targets);
///     loss.backward();   // gradients leave as they are ready
///     model.step();      // parameters come back; the next forward waits for them as the mode says
///
/// `gradwire run --servers 2` gives servers ranks of their own, which run the same program: there
/// the constructor serves until all workers have left, and then ends the process with status 0.
/// RANK and WORLD_SIZE count the ranks of one role. Without it servers are threads beside workers.
///
/// Call backward once for each step(); others under no_sync(). In modes ssp and async, and with
/// `use` below 1, workers may take different numbers of steps, and the others go on without a lost
/// worker. Collectives of the group need all workers.
///
/// With groups (ServersOptions::groups), the members of one take the same steps, and take() divides
/// a batch among them. pull() and report() complete the step first, which all members must do.
///
/// Errors: throws Exception. Not thread-safe.
template <class Module>
class Served : public DistributedModel<Module, ServedModule> {
  using Base = DistributedModel<Module, ServedModule>;

 public:
  using Base::core;

  explicit Served(Module module, const ServedOptions& options) : Base(std::move(module), options) {}

  /// Sets the factor on the optimizer's learning rates for the gradients of the following
  /// backwards, which leave before step(); at first 1. In mode sync the same on all workers.
  void set_rate(double rate) { core().set_rate(rate); }

  /// Pulls what the servers' optimizers have made of the gradient of the last backward.
  void step() { core().step(); }

  /// Steps in place of step(), and earlier: call it before backward. Parameters of a unit are
  /// pulled while backward computes the gradients of others. The parameters are the same bits in
  /// mode sync.
  void step_in_backward() { core().step_in_backward(); }

  /// Asks for the next batch of at most `count` samples (ServedOptions::samples): positions in the
  /// order of the samples of an epoch. The next backward that is not under no_sync() is of all
  /// batches since the last step. Waits while other workers have the last batches, which come back
  /// if they are lost. A batch of 0 samples is the end: all samples are applied, and the parameters
  /// are those of synchronize(). Only a worker that accumulates, and has batches since the last
  /// step, must step and ask again.
  servers::Deal take(std::int64_t count) { return core().take(count); }

  /// Gives all workers the same parameters: those of the servers after all gradients that workers
  /// have pushed before. Collective over the workers that are not lost; call it before evaluation,
  /// and before the parameters are saved. Mode sync needs it no more than DataParallel does.
  void synchronize() { core().synchronize(); }

  /// Replaces this worker's parameters by those of the servers, each server's as they are at one
  /// moment. Waits for no other worker.
  void pull() { core().pull(); }

  /// The parameters and buffers, and the states of the optimizers of some servers, for
  /// save_checkpoint() and load_checkpoint(): of the servers whose number has this worker's as the
  /// remainder of a division by the number of workers, or, without common steps and if
  /// `make_states` is false, of all servers, so that one worker can save alone, after
  /// synchronize().
  std::vector<TensorPiece> pieces(bool make_states = false) {
    return core().state().pieces(make_states);
  }
  /// Sends the servers the values and states that were loaded into pieces(true). Collective; call
  /// it before any backward.
  void loaded() { core().state().loaded(); }

  /// Returns what the servers have done so far: staleness by unit and by worker, dropped gradients.
  /// Waits for this worker's own gradients only.
  servers::ServerReport report() { return core().report(); }

  /// Staleness of all gradients that were applied.
  servers::Staleness staleness() { return report().staleness(); }
};

}  // namespace gradwire
