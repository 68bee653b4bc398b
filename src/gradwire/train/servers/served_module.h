#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/host/group.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/servers/sample_dealer.h"
#include "gradwire/servers/server_report.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/overlap.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/distributed_module.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

using step::Overlap;

namespace exchange {
class Exchange;
}
namespace servers {
class GroupedExchange;
class ServedExchange;
struct OrderRecord;
struct Placement;
struct ServedLayout;
}  // namespace servers

class Communicator;
class LocalServer;
class StandbyServer;
class Shards;
class SteppedByServers;
struct UnitPlan;

/// How parameter servers work. All must be the same on workers and servers.
struct ServersOptions {
  /// Number of servers beside workers, the first ones; 0: one on each worker. Ignored if `gradwire
  /// run --servers` has given the servers ranks of their own.
  int count = 0;
  /// "sync": a step is the mean of all workers' gradients; "async": each gradient is a step;
  /// "ssp:3": so too, but no worker begins a step before all have finished the one 3 + 1 before.
  std::string mode = "sync";
  /// Mode sync: a step is made of the first ceil(use * workers) gradients; late ones are dropped.
  double use = 1;
  double grace = 0;  ///< With `use` below 1: seconds in which a step with enough gradients waits.
  /// Without common steps: each gradient, or difference of local steps, counts by its samples.
  bool weighs_samples = false;
  /// Modes ssp and async: number of groups of workers, of the same size, which are synchronous
  /// within; 0: each worker is one. More than 8 only with `groups_beyond_8`.
  int groups = 0;
  bool groups_beyond_8 = false;
  /// Mode sync with `use` 1: names of parameters, or of modules with all of theirs, of which each
  /// gradient is a step, as in mode async. Workers still take the same steps: they wait for the
  /// others' gradients of the rest.
  std::vector<std::string> units;
  double units_rate = 1;  ///< Factor on the learning rate of these.
  int pull_every = 1;  ///< Modes ssp and async: steps from one pull of the parameters to the next.
  /// Factor on the learning rate by staleness: "none", "inverse" (1 / max(1, staleness)) or
  /// "power:0.5" ((1 + staleness) ^ -0.5).
  std::string rate = "none";
  /// Modes ssp and async: each server mirrors another one, and takes its place if that is lost. At
  /// most so many updates of a unit are lost then. Needs two servers; excludes groups and codecs.
  /// 0: the job ends if a server is lost.
  std::int64_t mirror_every = 0;
  bool keeps_order = false;  ///< Servers keep what ServedModule::order() returns.
};

/// Options of Served. All must be the same on workers and servers, but for `samples` and `epochs`,
/// which only workers need.
struct ServedOptions {
  ProcessGroup process_group;  ///< gradwire::init(): of the workers, or of the servers. Required.
  ServersOptions servers;
  /// Makes the optimizer of a unit, as ZeroOptions::optimizer; it steps on the servers. Lars and
  /// Lamb take norms over all servers, once all gradients of a step have arrived, and need mode
  /// sync with `use` 1. Required.
  OptimizerFactory optimizer = nullptr;
  /// Clips gradients to this global norm, over all servers, in mode sync with `use` 1; 0: no
  /// clipping.
  double max_grad_norm = 0;
  double bucket_cap_mb = step::kBucketMegabytes;  ///< Maximum unit size.
  Overlap overlap = Overlap::full;
  /// Samples of an epoch, and epochs, which server 0 deals to workers that ask (Served::take); 0:
  /// workers choose their own.
  std::int64_t samples = 0, epochs = 1;
  bool forward_awaits = false;  ///< DataParallelOptions::forward_awaits.
  /// DataParallelOptions::broadcast_buffers, in mode sync with all gradients. Otherwise no worker
  /// waits for the others, so that each has its own.
  bool broadcast_buffers = true;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  TraceRecorder* trace = nullptr;  ///< Records traffic; must outlive this.
  /// Codec of the gradients on their way to the servers: an element-wise one of
  /// codec/catalogue.h, with error feedback on the worker, or "none".
  std::string codec = "none";
  std::string pull_codec = "none";  ///< Parameters on their way back: or "bf16".
  std::size_t codec_min_elements = step::kCodecMinElements;  ///< Smaller units have no codec.
  int codec_warmup_steps = 0;    ///< ExchangeOptions::warmup_steps, of each worker.
  std::uint64_t codec_seed = 1;  ///< Seed of randomized codecs.
};

/// The part of Served that does not depend on the module's type.
class ServedModule final : public DistributedModule {
 public:
  ServedModule(torch::nn::Module& module, const ServedOptions& options, bool sequential);
  ~ServedModule() override;

  void set_rate(double rate);
  void step();
  void step_in_backward();
  /// ServedOptions::samples and epochs, of which `progress` has been applied. Collective.
  void deal(std::int64_t samples, std::int64_t epochs, const servers::DealProgress& progress);
  servers::DealProgress progress();
  /// Also returns if Deal::stop is set: then maybe without samples before the end.
  servers::Deal take(std::int64_t count, std::int64_t stop = 0);
  void synchronize();
  void pull();
  /// Waits for all living workers, and for their gradients.
  servers::Meeting meet();
  /// Says which random state the next step begins with, for order().
  void note_random_state();
  /// The events of each server so far, in its order (ServersOptions::keeps_order).
  std::vector<std::vector<servers::OrderRecord>> order();
  servers::Placement placement() const;
  /// Tells the servers that this worker ends. Nothing else may follow.
  void leave();
  Checkpointable& state() { return *state_; }
  std::size_t payload_bytes_sent() const;
  servers::ServerReport report();
  servers::ServedExchange& exchange() { return *exchange_; }

 private:
  void make_server(const ServedOptions& options, const servers::ServedLayout& layout,
                   const UnitPlan& plan, const std::vector<NamedTensor>& parameters, int number);
  void make_host(const ServedOptions& options, const servers::ServedLayout& layout,
                 std::vector<NamedTensor> buffers, bool sequential);
  std::unique_ptr<exchange::Exchange> make_exchange(const ServedOptions& options,
                                                    const servers::ServedLayout& layout);
  servers::Deal take_batch_of_group(std::int64_t count, std::int64_t stop);
  servers::Deal take_share(std::int64_t count, std::int64_t stop);
  void forget_batches();

  std::shared_ptr<Communicator> pairs_;
  std::shared_ptr<Communicator> members_;   ///< This worker's group; null without groups.
  std::unique_ptr<LocalServer> server_;     ///< Beside this worker; may be null.
  std::unique_ptr<StandbyServer> standby_;  ///< Beside server_, with mirrors.
  std::unique_ptr<Shards> shards_;
  std::unique_ptr<SteppedByServers> pushed_;
  std::unique_ptr<Checkpointable> state_;
  std::unique_ptr<TrainingHost> own_host_;
  servers::ServedExchange* exchange_ = nullptr;  ///< The host's.
  servers::GroupedExchange* grouped_ = nullptr;  ///< The host's; null without groups.
  bool left_ = false;
  bool has_optional_workers_ = false;  ///< The launcher knows.
  std::int64_t taken_ = 0;             ///< Batches since the last step.
  int dealer_ = 0;                     ///< ServedExchange::dealer() of these.
  double taken_samples_ = 0;           ///< Those of these batches.
  std::int64_t samples_ = 0;           ///< The dealt ones, of all epochs.
  /// Since the last step, with groups: this worker's weighted samples, and those of a batch.
  double own_samples_ = 0, group_samples_ = 0;
};

}  // namespace gradwire
