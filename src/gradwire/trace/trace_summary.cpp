#include "gradwire/trace/trace_summary.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/statistics.h"
#include "gradwire/base/units.h"

namespace gradwire {
namespace {

constexpr double kNotable = 0.1;  ///< Minimum share of a step that counts as a bottleneck.

double share_of(double part, double total) {
  return total > 0 ? part / total : 0;
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

std::string communication_text(const StepMedians& step) {
  const double sent = step.hidden + step.exposed;
  const double computing = step.forward + step.backward;
  const auto text =
      fmt::format("communication: {} of the step waits for other ranks; it takes {:.3g} ms, ",
                  percent(share_of(step.exposed, step.total)), 1e3 * sent);
  if (sent <= computing) {
    return text + fmt::format(
                      "less than the {:.3g} ms of forward and backward that could hide it: overlap "
                      "more (full overlap, smaller buckets; in a pipeline more micro-batches)",
                      1e3 * computing);
  }
  return text + fmt::format(
                    "{:.2g}x forward and backward, too long to hide: send less (a stronger codec, "
                    "such as int8 or top_k, or accumulate {}x the steps; fewer ranks of "
                    "mesh.tensor)",
                    sent / std::max(computing, 1e-9), sent > 2 * computing ? 4 : 2);
}

/// Returns the part in which the slow rank exceeds the others most, and by how many seconds.
std::pair<std::string_view, double> worst_part(const StepMedians& slow, const StepMedians& usual) {
  const std::array<std::pair<std::string_view, double>, 5> parts = {{
      {"data", slow.data - usual.data},
      {"forward", slow.forward - usual.forward},
      {"backward", slow.backward - usual.backward},
      {"optimiser", slow.optimizer - usual.optimizer},
      {"other", slow.other - usual.other},
  }};
  return *std::ranges::max_element(parts, {}, [](const auto& part) { return part.second; });
}

std::string straggler_text(const std::vector<RankMedians>& ranks, const SlowestRank& slowest) {
  const auto& slow = ranks[slowest.index];
  std::vector<RankMedians> others = ranks;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(slowest.index));
  const auto [part, more] = worst_part(slow.step, medians_over(others));
  return fmt::format(
      "rank {} on {} is {:.2g}x slower than the others, which wait for it: {:.3g} ms "
      "more per step, mostly ({:.3g} ms) in {}; check what else runs on that host",
      slow.rank, slow.host, slowest.ratio, 1e3 * slowest.excess, 1e3 * more, part);
}

std::string data_text(double share) {
  return fmt::format(
      "data: {} of the step waits for the next batch: prefetch more, or make batches "
      "cheaper to prepare",
      percent(share));
}

std::string compute_text(const StepMedians& step, std::size_t ranks) {
  const auto text = fmt::format("compute: {} of the step (forward {}, backward {})",
                                percent(share_of(step.busy - step.data, step.total)),
                                percent(share_of(step.forward, step.total)),
                                percent(share_of(step.backward, step.total)));
  if (ranks == 1) return text + "; more ranks would share it";
  return text + "; the network is not the bottleneck";
}

}  // namespace

StepMedians medians_over(const std::vector<RankMedians>& ranks) {
  const auto of = [&ranks](double StepMedians::*part) {
    std::vector<double> values;
    for (const auto& rank : ranks) values.push_back(rank.step.*part);
    return median(std::move(values));
  };
  return {.total = of(&StepMedians::total),
          .data = of(&StepMedians::data),
          .forward = of(&StepMedians::forward),
          .backward = of(&StepMedians::backward),
          .optimizer = of(&StepMedians::optimizer),
          .exposed = of(&StepMedians::exposed),
          .other = of(&StepMedians::other),
          .hidden = of(&StepMedians::hidden),
          .busy = of(&StepMedians::busy),
          .bytes = of(&StepMedians::bytes)};
}

SlowestRank slowest_of(const std::vector<RankMedians>& ranks) {
  const auto busy = [](const RankMedians& rank) { return rank.step.busy; };
  const auto slowest = std::ranges::max_element(ranks, {}, busy);
  std::vector<double> others;
  for (const auto& rank : ranks) {
    if (&rank != &*slowest) others.push_back(rank.step.busy);
  }
  const double own = slowest->step.busy;
  SlowestRank found{.index = static_cast<std::size_t>(slowest - ranks.begin()), .others = own};
  if (others.empty()) return found;
  found.others = median(std::move(others));
  found.excess = own - found.others;
  found.ratio = found.others > 0 ? own / found.others : 1;
  return found;
}

Bottleneck bottleneck(const std::vector<RankMedians>& all) {
  auto ranks = all;
  std::erase_if(ranks, [](const RankMedians& rank) { return rank.steps == 0; });
  if (ranks.empty()) return {.text = "no complete step was recorded"};
  const auto step = medians_over(ranks);
  const auto slowest = slowest_of(ranks);
  const double network = share_of(ranks[slowest.index].step.exposed, step.total);
  const double straggler = share_of(slowest.excess, step.total);
  const double data = share_of(step.data, step.total);
  const double largest = std::max({network, straggler, data});
  if (largest < kNotable) {
    return {BottleneckCause::compute, share_of(step.busy - step.data, step.total),
            compute_text(step, ranks.size())};
  }
  if (largest == network)
    return {BottleneckCause::communication, network, communication_text(step)};
  if (largest == straggler) {
    return {BottleneckCause::straggler, straggler, straggler_text(ranks, slowest)};
  }
  return {BottleneckCause::data, data, data_text(data)};
}

namespace {

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<20} {}\n", name, value);
}

std::string part(double seconds, double total) {
  return fmt::format("{:9.2f} ms {:5.1f} %", 1e3 * seconds, total > 0 ? 100 * seconds / total : 0);
}

std::string communication(const StepMedians& step) {
  auto text =
      fmt::format("{:9.2f} ms: {:.2f} hidden behind computing, {:.2f} exposed",
                  1e3 * (step.hidden + step.exposed), 1e3 * step.hidden, 1e3 * step.exposed);
  if (step.bytes > 0) {
    text += fmt::format("; {} sent", format_bytes(static_cast<std::size_t>(step.bytes)));
  }
  return text;
}

std::string slowest(const std::vector<RankMedians>& ranks) {
  const auto found = slowest_of(ranks);
  const auto& rank = ranks[found.index];
  return fmt::format("{} on {}: busy for {:.2f} ms a step, the others for {:.2f}", rank.rank,
                     rank.host, 1e3 * rank.step.busy, 1e3 * found.others);
}

std::string file_line(const TraceSummary& summary) {
  auto text = fmt::format("{} ({} spans", summary.file, summary.spans);
  if (summary.dropped > 0) text += fmt::format(", {} older ones dropped", summary.dropped);
  if (summary.clock_error > Duration{}) {
    text += fmt::format(", clocks aligned to within {}", format_duration(summary.clock_error));
  }
  return text + "): open it at https://ui.perfetto.dev";
}

}  // namespace

std::string format_trace_summary(const TraceSummary& summary) {
  const auto step = medians_over(summary.ranks);
  std::size_t steps = 0;
  for (const auto& rank : summary.ranks) steps = std::max(steps, rank.steps);
  auto text = fmt::format("Trace of {} step{} on {} rank{}: {:.2f} ms a step (medians)\n", steps,
                          steps == 1 ? "" : "s", summary.ranks.size(),
                          summary.ranks.size() == 1 ? "" : "s", 1e3 * step.total);
  text += line("data", part(step.data, step.total));
  text += line("forward", part(step.forward, step.total));
  text += line("backward", part(step.backward, step.total));
  text += line("optimiser", part(step.optimizer, step.total));
  text += line("waiting", part(step.exposed, step.total));
  text += line("other", part(step.other, step.total));
  if (summary.ranks.size() > 1) {
    text += line("communication", communication(step));
    text += line("slowest rank", slowest(summary.ranks));
  }
  if (summary.in_step) text += line("bottleneck", bottleneck(summary.ranks).text);
  return text + line("trace", file_line(summary));
}

}  // namespace gradwire
