#include "gradwire/plan/servers_advice.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/statistics.h"

namespace gradwire::plan {
namespace {

/// Times the median of the others above which a worker is slow for good.
constexpr double kSlow = 1.5;

}  // namespace

std::string advice_on_slow_worker(const servers::ServerPolicy& policy,
                                  std::span<const double> compute) {
  if (policy.mode != servers::Mode::ssp || compute.size() < 2) return "";
  const auto slowest = std::ranges::max_element(compute);
  std::vector<double> others;
  double rate = 0;  // Updates of all workers, if none waits.
  for (auto worker = compute.begin(); worker != compute.end(); ++worker) {
    if (*worker <= 0) return "";  // Not known.
    if (worker != slowest) others.push_back(*worker);
    rate += 1 / *worker;
  }
  const double factor = *slowest / median(others);
  if (factor <= kSlow) return "";
  const double gain = rate * *slowest / static_cast<double>(compute.size());
  return fmt::format(
      "worker {} computes {:.1f} times as long as the others, and in mode {} all end at its pace: "
      "use mode async, which by compute alone has {:.1f} times as many updates, alone or with "
      "local_steps; or leave it out",
      slowest - compute.begin(), factor, servers::mode_text(policy), gain);
}

std::string advice_on_slow_worker(const servers::ServerPolicy& policy,
                                  const emulation::PassTimes& times, int members) {
  std::vector<double> compute(static_cast<std::size_t>(policy.workers), 1.0);
  for (const auto& [worker, slow] : times.slow) {
    double& group = compute.at(static_cast<std::size_t>(worker / members));
    group = std::max(group, 1 + slow.share * (slow.factor - 1));
  }
  return advice_on_slow_worker(policy, compute);
}

}  // namespace gradwire::plan
