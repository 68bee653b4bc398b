#include "gradwire/schedule/cost/incast.h"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "gradwire/schedule/cost/port_times.h"

namespace gradwire {

std::size_t max_fan_in(const ProgramSet& programs, const std::function<bool(Rank, Rank)>& counts) {
  const auto rounds =
      static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(programs.ranks() - 1)));
  std::size_t most = 0;
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    std::set<Rank> senders;
    for (const Op& op : programs.program(rank).ops) {
      if (receives(op) && counts(rank, op.peer)) senders.insert(op.peer);
    }
    most = std::max(most, senders.size());
  }
  return most > rounds ? most : 0;
}

double incast_factor(const ScheduleCost& cost, const Topology& topology) {
  constexpr std::size_t kMinFanIn = 2, kMaxFanIn = 8;
  constexpr double kDirectPenalty = 0.004, kForwardingPenalty = 0.065;
  constexpr double kBusy = 0.9;  // Of the busiest port's time: others have slack.
  constexpr std::uint32_t kDirectSteps = 2;
  const std::uint32_t chunks = cost.programs().schedule().chunks;
  const ChunkLayout equal(chunks, chunks, 1);
  const std::vector<double> times = port_times(cost.programs(), topology, equal);
  const double busy = kBusy * std::ranges::max(times);
  const std::size_t streams = max_fan_in(cost.programs(), [&](Rank to, Rank from) {
    const auto host = static_cast<std::size_t>(topology.host_of(to));
    return !topology.same_host(to, from) && times[host] >= busy;
  });
  const auto beyond = static_cast<double>(std::clamp(streams, kMinFanIn, kMaxFanIn) - kMinFanIn);
  const bool forwarded = cost.count(equal).steps > kDirectSteps;
  return 1 + (forwarded ? kForwardingPenalty * beyond : kDirectPenalty * beyond * beyond);
}

}  // namespace gradwire
