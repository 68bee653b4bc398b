#include "gradwire/plan/gradient_exchange.h"

#include <algorithm>

#include "gradwire/plan/collective_time.h"
#include "gradwire/plan/wire_bytes.h"

namespace gradwire {
namespace {

double ring_share(int ranks) {
  return 2.0 * (ranks - 1) / ranks;
}

/// Who exchanges how much of the model's parameters over the network.
struct Groups {
  int nodes = 1;          ///< Nodes that hold the same piece.
  int inside = 1;         ///< Replicas in one node.
  double parameters = 0;  ///< That each node has to exchange.
};

Groups groups_of(const PlanInput& input) {
  const Strategy& s = input.strategy;
  const int replica = s.tensor * s.pipeline;
  const double parameters = static_cast<double>(input.model.parameters());
  if (replica <= s.devices_per_node) return {s.nodes, s.devices_per_node / replica, parameters};
  return {s.data(), 1, parameters * s.devices_per_node / replica};
}

/// The network at the rate that the measurement shows.
Network effective_network(const PlanInput& input) {
  Network network = input.network;
  const Measurements& measured = input.measured;
  if (measured.communication <= 0) return network;
  const double bytes = 4.0 * static_cast<double>(input.model.parameters());
  network.bytes_per_second = ring_share(measured.nodes) * bytes / measured.communication;
  network.goodput_share = 1;
  network.measured.reset();
  return network;
}

double latency_measured(const PlanInput& input) {
  const Measurements& m = input.measured;
  if (m.communication <= 0) return 0;
  return all_reduce_time("ring", m.nodes, 1, input.network).latency;
}

CollectiveTime averaging(const PlanInput& input, const Groups& groups, const Network& network) {
  const Strategy& s = input.strategy;
  const WireBytes wire = wire_bytes(s.codec, groups.nodes);
  if (wire.coded)
    return coded_time(groups.nodes, wire.contribution * groups.parameters,
                      wire.mean * groups.parameters, network);
  const double bytes = bytes_per_parameter(s.compute, s.optimiser).gradient * groups.parameters;
  if (s.servers > 0) return server_time(groups.nodes, s.servers, bytes, network);
  return all_reduce_time(s.algorithm, groups.nodes, bytes, network);
}

/// Replicas of one node, over what joins its devices.
double inside_time(const PlanInput& input, const Groups& groups) {
  const Strategy& s = input.strategy;
  if (groups.inside < 2) return 0;
  const double bytes = bytes_per_parameter(s.compute, s.optimiser).gradient *
                       static_cast<double>(input.model.parameters()) / (s.tensor * s.pipeline);
  return ring_share(groups.inside) * bytes / input.device.inside_bytes_per_second;
}

void add_zero(GradientExchange& exchange, const PlanInput& input, const Groups& groups,
              const Network& network) {
  const Strategy& s = input.strategy;
  if (s.zero_stage == 0) return;
  const double bytes = bytes_per_parameter(s.compute, s.optimiser).parameter * groups.parameters;
  const CollectiveTime gather = reduce_scatter_time(groups.nodes, bytes, network);
  exchange.gathered_after = gather.total();
  if (s.zero_stage < 3) return;
  // Each pass gathers twice; what follows the update is the next forward's.
  const double passes = 2 * s.accumulate;
  exchange.gathered_in_passes = passes * gather.total();
  exchange.gathered_after = 0;
  exchange.bandwidth += (passes - 1) * gather.bandwidth;
  exchange.latency += (passes - 1) * gather.latency;
  exchange.wire_bytes += (passes - 1) * gather.sent;
}

}  // namespace

GradientExchange gradient_exchange(const PlanInput& input) {
  const Groups groups = groups_of(input);
  const Network network = effective_network(input);
  const CollectiveTime time = averaging(input, groups, network);
  GradientExchange exchange{.bandwidth = time.bandwidth + inside_time(input, groups),
                            .latency = std::max(0.0, time.latency - latency_measured(input)),
                            .wire_bytes = time.sent,
                            .algorithm = time.algorithm};
  add_zero(exchange, input, groups, network);
  const double local = input.strategy.local_steps;
  exchange.bandwidth /= local;
  exchange.latency /= local;
  exchange.wire_bytes /= local;
  return exchange;
}

}  // namespace gradwire
