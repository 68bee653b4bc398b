#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/host/group.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/overlap.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/distributed_module.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

using step::Overlap;

class Buckets;
class BucketOptimizers;

/// Options of DataParallel. The first five have the names and meanings of PyTorch's
/// DistributedDataParallel. All values must be the same on every rank.
struct DataParallelOptions {
  ProcessGroup process_group;  ///< gradwire::init() or any other c10d group. Required.
  /// Maximum bucket size in MiB (2^20 bytes). The first and the last bucket are smaller
  /// (step/bucket_plan.h). The default is smaller than PyTorch's 25, because nothing hides the
  /// last bucket's communication.
  double bucket_cap_mb = step::kBucketMegabytes;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  /// Makes the optimizer that step() runs on each bucket. Null: step() throws. Required for
  /// Overlap::full.
  OptimizerFactory optimizer = nullptr;
  Overlap overlap = Overlap::backward;
  /// True if Module::forward calls await_parameters() for each block before it uses the block. If
  /// false, forward waits for the whole step. Not needed for a Sequential, whose children are
  /// awaited one by one.
  bool forward_awaits = false;
  /// Gradient codec: "none", "int8", "top_k:0.01", ... (ExchangeOptions::codec). Other codecs than
  /// "none" are lossy and require a gradwire process group: docs/compression.md.
  std::string codec = "none";
  /// Tensors with fewer elements, and vectors, are sent uncompressed.
  std::size_t codec_min_elements = step::kCodecMinElements;
  int codec_warmup_steps = 0;  ///< ExchangeOptions::warmup_steps.
  std::uint64_t codec_seed = 1;
  /// Allows abandon_step(), for which it keeps copies of the buffers and of the codec's residuals.
  /// Requires an optimizer.
  bool can_abandon = false;
  /// Fail with an error that names the parameter if a mean gradient is not finite.
  bool check_finite = false;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  /// Records bucket traffic and optimizer steps; must outlive this.
  TraceRecorder* trace = nullptr;
};

/// Returns the options. Throws Exception(invalid_argument) if they have Overlap::full without an
/// optimizer: the caller's own could step before the gradients are complete.
const DataParallelOptions& with_optimizer_for_overlap(const DataParallelOptions& options);

/// The part of DataParallel that does not depend on the module's type.
class DataParallelCore final : public DistributedModule {
 public:
  /// Checks that all ranks have the same parameters and buffers, then broadcasts rank 0's values.
  DataParallelCore(torch::nn::Module& module, const DataParallelOptions& options, bool sequential);
  ~DataParallelCore() override;

  void step(BeforeStep before, double factor = 1);

  const Buckets& buckets() const { return *buckets_; }
  /// One per bucket; empty without a factory.
  std::vector<torch::optim::Optimizer*> optimizers();

 private:
  std::unique_ptr<Buckets> buckets_;
  std::unique_ptr<BucketOptimizers> optimizers_;  ///< Null without a factory.
  std::unique_ptr<TrainingHost> own_host_;
};

/// Data-parallel training of one module: every rank processes its part of the batch. After
/// backward, each parameter's gradient is the mean over ranks, so that all ranks' optimizers take
/// the same step. `Module` is a TORCH_MODULE holder or a std::shared_ptr to a module. The module
/// may be on an accelerator (docs/library.md); all work is then stream-ordered.
///
///     gradwire::DataParallel model(Net(), {.process_group = gradwire::init()});
///     auto loss = torch::nll_loss(model(inputs), targets);   // means over this rank's part
///     loss.backward();                                       // overlaps with communication
///     optimizer.step();
///
/// With one optimizer per bucket, communication also overlaps with the next forward:
///
///     gradwire::DataParallel model(net, {.process_group = group, .optimizer = make_sgd,
///                                        .overlap = gradwire::Overlap::full});
///     ...
///     loss.backward();
///     model.step();   // steps the buckets that arrived; forward steps the rest when it needs them
///
/// The parameters after any number of steps are bitwise the same with and without overlap. finish()
/// completes the pending step. forward, `model->` and `model.module()` call it where necessary;
/// call it before reading parameters in any other way.
///
/// Every rank must run the same sequence of forward and backward, as with DistributedDataParallel.
/// Do not add, remove or freeze parameters afterwards. Construct it before the optimizer reads the
/// parameters.
///
/// In training mode with gradients enabled, forward first broadcasts rank 0's buffers. In eval mode
/// it does not communicate, so ranks may evaluate different numbers of batches; call
/// synchronize_buffers() first if the buffers matter. There is no communication if the world size
/// is 1.
///
/// Errors: throws Exception on all ranks; the communicator is unusable afterwards. Not thread-safe.
template <class Module>
class DataParallel : public DistributedModel<Module, DataParallelCore> {
  using Base = DistributedModel<Module, DataParallelCore>;

 public:
  explicit DataParallel(Module module, const DataParallelOptions& options)
      : Base(std::move(module), with_optimizer_for_overlap(options)) {}

  /// Steps DataParallelOptions::optimizer with the gradients of the last backward, then clears
  /// them. `before` is called before each bucket's optimizer steps, possibly as late as in the next
  /// forward; use it to set the learning rate. Throws Exception(invalid_argument) if there is no
  /// optimizer.
  void step(BeforeStep before = nullptr) { this->core().step(std::move(before)); }
};

}  // namespace gradwire
