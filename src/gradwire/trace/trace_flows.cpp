#include "gradwire/trace/trace_flows.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace gradwire {
namespace {

constexpr std::string_view kWaitFor = "wait for ";

/// Returns the indices of communications by name, in the order in which they began.
std::map<std::string_view, std::vector<std::size_t>> communications_of(const TraceLog& log) {
  std::map<std::string_view, std::vector<std::size_t>> by_name;
  for (std::size_t i = 0; i < log.spans.size(); ++i) {
    const TraceSpan& span = log.spans[i];
    if (span.kind == TraceKind::communication) by_name[log.names[span.name]].push_back(i);
  }
  for (auto& [name, all] : by_name) {
    std::ranges::stable_sort(all, {}, [&](std::size_t i) { return log.spans[i].begin; });
  }
  return by_name;
}

}  // namespace

std::vector<TraceFlow> flows_of(const TraceLog& log) {
  const auto communications = communications_of(log);
  std::vector<TraceFlow> flows;
  for (std::size_t i = 0; i < log.spans.size(); ++i) {
    const TraceSpan& wait = log.spans[i];
    const std::string_view name = log.names[wait.name];
    if (wait.kind != TraceKind::wait || !name.starts_with(kWaitFor)) continue;
    const auto found = communications.find(name.substr(kWaitFor.size()));
    if (found == communications.end()) continue;
    const auto after = std::ranges::upper_bound(found->second, wait.end, {},
                                                [&](std::size_t c) { return log.spans[c].begin; });
    if (after != found->second.begin()) flows.push_back({*(after - 1), i});
  }
  return flows;
}

}  // namespace gradwire
