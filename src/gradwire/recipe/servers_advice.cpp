#include "gradwire/recipe/servers_advice.h"

#include <fmt/format.h>

namespace gradwire::recipe {
namespace {

/// With more workers, gradients are older than what the learning rate usually allows.
constexpr int kManyWorkers = 8;

/// Outer settings above both of these are unstable with stale differences (docs/servers.md).
constexpr double kStaleMomentum = 0.5, kStaleRate = 0.3;

double momentum_of(const OptimizerConfig& optimizer) {
  return optimizer.has_moments() ? optimizer.beta1 : optimizer.momentum;
}

}  // namespace

std::vector<std::string> advice_on_servers(const TrainConfig& config, int ranks) {
  const ServersConfig& servers = config.servers;
  const int workers = servers.asynchronous(ranks);  // To servers, a group is one.
  std::vector<std::string> lines;
  const bool has_asynchronous = servers.mode != "sync" || !servers.units.empty();
  if (!servers.enabled || !has_asynchronous || workers == 1) return lines;
  // The outer optimizer takes each difference for a part of a step, and delays its momentum.
  const bool is_outer = config.local_steps.enabled;
  if (!is_outer && servers.rate == "none" && servers.scale == 1) {
    lines.push_back(
        fmt::format("warning: {} workers take {} steps{} where mode sync takes one: servers.scale "
                    "{:.3g} (1/{}) "
                    "or servers.rate \"inverse\" gives them its learning rate",
                    workers, workers, servers.units.empty() ? "" : " of the asynchronous units",
                    1.0 / workers, workers));
  }
  if (const double momentum = momentum_of(config.optimizer); !is_outer && momentum > 0) {
    lines.push_back(fmt::format(
        "warning: asynchrony of {} workers acts like a momentum of 1 - 1/{} = {:.2f}, beside the "
        "optimizer's {:g}: lower that if the loss grows",
        workers, workers, 1 - 1.0 / workers, momentum));
  }
  if (is_outer && config.local_steps.outer_momentum > kStaleMomentum &&
      config.local_steps.outer_learning_rate > kStaleRate) {
    lines.push_back(fmt::format(
        "warning: differences are {} updates old on average: with an outer momentum of {:g}, an "
        "outer_learning_rate of {:g} is usual, not {:g}",
        workers - 1, config.local_steps.outer_momentum, kStaleRate,
        config.local_steps.outer_learning_rate));
  }
  if (workers > kManyWorkers) {
    lines.push_back(fmt::format(
        "warning: with {} workers the mean staleness is {} updates, and the learning rate must "
        "fall "
        "with it: at most {} asynchronous workers are usual; mode sync has no such limit",
        workers, workers - 1, kManyWorkers));
  }
  return lines;
}

}  // namespace gradwire::recipe
