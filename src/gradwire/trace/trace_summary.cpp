#include "gradwire/trace/trace_summary.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/units.h"

namespace gradwire {
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
  text += line("bottleneck", bottleneck(summary.ranks).text);
  return text + line("trace", file_line(summary));
}

}  // namespace gradwire
