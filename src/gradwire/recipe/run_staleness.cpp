#include "gradwire/recipe/run_staleness.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/statistics.h"
#include "gradwire/plan/servers_advice.h"
#include "gradwire/plan/simulate/server_training.h"

namespace gradwire::recipe {
namespace {

/// Simulated steps of each worker.
constexpr int kSimulatedSteps = 1000;

report::StalenessPart part_of(const servers::Staleness& staleness) {
  return {.mean = staleness.mean(), .max = staleness.max()};
}

bool are_known(const std::vector<servers::Pace>& paces) {
  return !paces.empty() && std::ranges::all_of(paces, [](const servers::Pace& pace) {
    return pace.mean > Duration::zero();
  });
}

/// Seconds of compute by group, each that of its slowest member.
std::vector<double> compute_of_groups(const std::vector<servers::Pace>& paces, int members) {
  std::vector<double> groups(paces.size() / static_cast<std::size_t>(members));
  for (std::size_t worker = 0; worker < paces.size(); ++worker) {
    double& group = groups.at(worker / static_cast<std::size_t>(members));
    group = std::max(group, seconds(paces[worker].mean));
  }
  return groups;
}

/// Runs the rules in virtual time, on a network that takes none. Times spread as those of the
/// median worker do, relative to its mean.
report::StalenessPrediction predict_staleness(const ServedRules& rules,
                                              const std::vector<servers::Pace>& paces) {
  plan::ServerModel model{.policy = rules.policy,
                          .members = rules.members,
                          .worker_rate = 1,
                          .server_rate = 1,
                          .pull_every = rules.pull_every};
  std::vector<double> variations;
  for (std::size_t worker = 0; worker < paces.size(); ++worker) {
    const double mean = seconds(paces[worker].mean);
    model.times.slow[static_cast<Rank>(worker)] = {.factor = mean};
    variations.push_back(seconds(paces[worker].deviation) / mean);
  }
  // A log-normal time has mean 1 and this coefficient of variation.
  const double variance = std::log1p(std::pow(median(variations), 2));
  model.compute = {std::exp(-variance / 2), std::sqrt(variance)};
  const plan::ServerTraining found = plan::simulate_servers(model, kSimulatedSteps, 1);
  return {.mean = found.staleness, .p99 = found.staleness_p99, .late = found.late};
}

void add_parts(const servers::ServerReport& report, const ServedRules& rules,
               report::StalenessSummary& summary) {
  const auto members = static_cast<std::size_t>(rules.members);
  for (std::size_t unit = 0; unit * members < report.by_unit.size(); ++unit) {
    servers::Staleness whole;  // All members' slices.
    for (std::size_t slice = unit * members; slice < (unit + 1) * members; ++slice) {
      whole.add(report.by_unit[slice]);
    }
    summary.by_unit.push_back(part_of(whole));
  }
  if (!rules.policy.asynchronous.empty()) return;
  for (const servers::Staleness& worker : report.by_worker) {
    summary.by_worker.push_back(part_of(worker));
  }
}

/// All units', or that of the asynchronous ones beside others.
servers::Staleness staleness_of_run(const servers::ServerReport& report,
                                    const servers::ServerPolicy& policy) {
  if (policy.asynchronous.empty()) return report.staleness();
  servers::Staleness all;
  for (std::size_t unit = 0; unit < report.by_unit.size(); ++unit) {
    if (policy.mode_of(unit) != policy.mode) all.add(report.by_unit[unit]);
  }
  return all;
}

}  // namespace

report::StalenessSummary summarize_staleness(const servers::ServerReport& report,
                                             const ServedRules& rules) {
  const servers::Staleness all = staleness_of_run(report, rules.policy);
  const auto updates = static_cast<double>(all.count()), late = static_cast<double>(report.late());
  const double elapsed = seconds(report.elapsed);
  report::StalenessSummary summary{
      .mean = all.mean(),
      .p50 = all.quantile(0.5),
      .p99 = all.quantile(0.99),
      .max = all.max(),
      .version = report.versions.empty() ? 0 : std::ranges::max(report.versions),
      .rate = report.mean_factor,
      .late = updates + late > 0 ? late / (updates + late) : 0,
      .busy = elapsed > 0 ? seconds(report.busy) / elapsed / report.servers : 0,
      .lost_servers = report.lost_servers,
      .lost_updates = report.lost_updates,
      .lost_gradients = report.lost_gradients};
  add_parts(report, rules, summary);
  if (rules.policy.has_common_steps()) return summary;
  // The simulation does not measure a grace.
  if (!are_known(report.paces) || rules.policy.grace > Duration::zero()) return summary;
  summary.predicted = predict_staleness(rules, report.paces);
  summary.advice =
      plan::advice_on_slow_worker(rules.policy, compute_of_groups(report.paces, rules.members));
  return summary;
}

}  // namespace gradwire::recipe
