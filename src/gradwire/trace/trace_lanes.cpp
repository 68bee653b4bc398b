#include "gradwire/trace/trace_lanes.h"

#include <algorithm>
#include <tuple>

namespace gradwire {
namespace {

/// Ends of the open spans in a lane, the innermost last.
using Lane = std::vector<Time>;

void close_until(Lane& lane, Time time) {
  while (!lane.empty() && lane.back() <= time) lane.pop_back();
}

}  // namespace

std::vector<SpanLane> assign_lanes(const std::vector<TraceSpan>& spans) {
  std::vector<SpanLane> places;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    places.push_back({.span = i, .communication = spans[i].kind == TraceKind::communication});
  }
  std::ranges::stable_sort(places, {}, [&spans](const SpanLane& place) {
    const auto& span = spans[place.span];
    return std::tuple(span.begin, -span.end.time_since_epoch(), span.kind != TraceKind::step);
  });
  std::vector<Lane> computing;
  std::vector<Lane> communicating;
  for (auto& place : places) {
    const auto& span = spans[place.span];
    auto& lanes = place.communication ? communicating : computing;
    const auto fits = [&](Lane& lane) {
      close_until(lane, span.begin);
      return lane.empty() || (!place.communication && span.end <= lane.back());
    };
    auto lane = std::ranges::find_if(lanes, fits);
    if (lane == lanes.end()) lane = lanes.emplace(lanes.end());
    lane->push_back(span.end);
    place.lane = static_cast<int>(lane - lanes.begin());
  }
  return places;
}

}  // namespace gradwire
