#include "gradwire/plan/gradient_exchange.h"

#include <algorithm>

#include "gradwire/plan/collective_time.h"
#include "gradwire/plan/wire_bytes.h"

namespace gradwire {
namespace {

double ring_share(int ranks) {
  return 2.0 * (ranks - 1) / ranks;
}

/// Replicas in and between nodes, and the parameters that nodes exchange.
struct Groups {
  int nodes = 1;          ///< Nodes that hold the same part of the model.
  int inside = 1;         ///< Replicas in one node.
  double parameters = 0;  ///< Exchanged by each node.
};

Groups groups_of(const PlanInput& input) {
  const Strategy& s = input.strategy;
  const int replica = s.tensor * s.pipeline;
  const double parameters = static_cast<double>(input.model.parameters());
  if (replica <= s.devices_per_node) return {s.nodes, s.devices_per_node / replica, parameters};
  return {s.data(), 1, parameters * s.devices_per_node / replica};
}

/// Returns the network with the rate that the measured communication implies.
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
  const double bytes = bytes_per_parameter(s.compute, s.optimizer).gradient * groups.parameters;
  if (s.servers > 0) return server_time(groups.nodes, s.servers, bytes, network);
  return all_reduce_time(s.algorithm, groups.nodes, bytes, network);
}

/// Time to reduce among the replicas of one node, over its device links.
double inside_time(const PlanInput& input, const Groups& groups) {
  const Strategy& s = input.strategy;
  if (groups.inside < 2) return 0;
  const double bytes = bytes_per_parameter(s.compute, s.optimizer).gradient *
                       static_cast<double>(input.model.parameters()) / (s.tensor * s.pipeline);
  return ring_share(groups.inside) * bytes / input.device.inside_bytes_per_second;
}

/// Reduces gradients to the ranks that update with them.
CollectiveTime reduction(const PlanInput& input, const Groups& groups, const Network& network) {
  const Strategy& s = input.strategy;
  const WireBytes wire = wire_bytes(s.codec, groups.nodes);
  if (wire.coded)
    return coded_reduction_time(groups.nodes, wire.contribution * groups.parameters, network);
  const double bytes = bytes_per_parameter(s.compute, s.optimizer).gradient * groups.parameters;
  return reduce_scatter_time(groups.nodes, bytes, network);
}

WholeExchange whole(const CollectiveTime& time) {
  return {.bandwidth = time.bandwidth, .latency = time.latency};
}

/// ZeRO: reductions of gradients and gathers of parameters, in place of an all-reduce.
GradientExchange sharded(const PlanInput& input, const Groups& groups, const Network& network) {
  const Strategy& s = input.strategy;
  const double bytes = bytes_per_parameter(s.compute, s.optimizer).parameter * groups.parameters;
  const CollectiveTime reduce = reduction(input, groups, network);
  const CollectiveTime gather = reduce_scatter_time(groups.nodes, bytes, network);
  // Stage 1 accumulates passes before it reduces; the others have no memory for that.
  const double reductions = s.zero_stage == 1 ? 1 : s.accumulate;
  // Stage 3: forward and backward of each pass. Others: after the update, for the next forward.
  const double gathers = s.zero_stage == 3 ? 2 * s.accumulate : 1;
  return {.bandwidth = reductions * reduce.bandwidth + gathers * gather.bandwidth,
          .latency = reductions * reduce.latency + gathers * gather.latency,
          .wire_bytes = reductions * reduce.sent + gathers * gather.sent,
          .algorithm = reduce.algorithm,
          .reduce = whole(reduce),
          .gather = whole(gather)};
}

GradientExchange between_nodes(const PlanInput& input, const Groups& groups,
                               const Network& network) {
  if (input.strategy.zero_stage > 0) return sharded(input, groups, network);
  const CollectiveTime time = averaging(input, groups, network);
  return {.bandwidth = time.bandwidth,
          .latency = time.latency,
          .wire_bytes = time.sent,
          .algorithm = time.algorithm,
          .reduce = whole(time)};
}

}  // namespace

GradientExchange gradient_exchange(const PlanInput& input) {
  const Groups groups = groups_of(input);
  const Network network = effective_network(input);
  GradientExchange exchange = between_nodes(input, groups, network);
  const double inside = inside_time(input, groups), measured = latency_measured(input);
  exchange.bandwidth += inside;
  exchange.reduce.bandwidth += inside;
  exchange.latency = std::max(0.0, exchange.latency - measured);
  exchange.reduce.latency = std::max(0.0, exchange.reduce.latency - measured);
  const double local = input.strategy.local_steps;
  exchange.bandwidth /= local;
  exchange.latency /= local;
  exchange.wire_bytes /= local;
  return exchange;
}

}  // namespace gradwire
