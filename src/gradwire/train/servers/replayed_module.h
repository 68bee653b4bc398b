#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/lent_span.h"
#include "gradwire/servers/server.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/overlap.h"
#include "gradwire/train/distributed_module.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

class Shards;
class SteppedByServers;
class TorchShards;
class TrainingHost;

struct ReplayedOptions {
  int servers = 1;             ///< Number of servers of the run.
  OptimizerFactory optimizer;  ///< ServedOptions::optimizer.
  double bucket_cap_mb = step::kBucketMegabytes;
  step::Overlap overlap = step::Overlap::full;
};

/// A module and all servers of a run in one process, without messages. The caller reads the
/// gradients of a backward by gradient(), and writes the parameters by values(). The memory has the
/// layout of a worker's, so that the computation has the same bits.
class ReplayedModule final : public DistributedModule {
 public:
  /// The servers get copies of the module's parameters.
  ReplayedModule(torch::nn::Module& module, const ReplayedOptions& options, bool sequential);
  ~ReplayedModule() override;

  /// Call before the backward whose gradients gradient() returns.
  void step_in_backward();

  LentSpan values(std::size_t unit);
  LentSpan gradient(std::size_t unit);
  std::vector<servers::ServedShards*> servers();
  /// Replaces the module's parameters by those of the servers.
  void take_values();

 private:
  class KeptGradients;

  std::vector<std::unique_ptr<TorchShards>> servers_;
  std::unique_ptr<Shards> shards_;
  std::unique_ptr<SteppedByServers> stepped_;
  std::unique_ptr<TrainingHost> own_host_;
  KeptGradients* gradients_ = nullptr;  ///< The host's exchange.
};

}  // namespace gradwire
