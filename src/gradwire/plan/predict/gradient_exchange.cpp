#include "gradwire/plan/predict/gradient_exchange.h"

#include <algorithm>

#include "gradwire/plan/predict/collective_time.h"

namespace gradwire::plan {
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

/// Replaces modeled by measured seconds: those of bytes by as many bytes, those of hops by the ones
/// beyond the hops of a ring.
void apply_measurement(const PlanInput& input, GradientExchange& exchange) {
  const Measurements& measured = input.measured;
  if (measured.communication <= 0) return;
  const double bytes = 4.0 * static_cast<double>(input.model.parameters());
  const double cards = 1 + input.network.further_card * (input.network.cards - 1);
  const double wire_seconds = measured.communication / (ring_share(measured.nodes) * bytes * cards);
  const double bandwidth = exchange.bandwidth, latency = exchange.latency;
  exchange.bandwidth = wire_seconds * exchange.wire_bytes;
  const CollectiveTime hops =
      input.times->of(schedule::Collective::all_reduce, "ring", measured.nodes, 1, input.network);
  exchange.latency = std::max(0.0, exchange.latency - hops.latency);
  for (WholeExchange* part : {&exchange.reduce, &exchange.gather}) {
    if (bandwidth > 0) part->bandwidth *= exchange.bandwidth / bandwidth;
    if (latency > 0) part->latency *= exchange.latency / latency;
    if (latency > 0) part->smallest_latency *= exchange.latency / latency;
  }
}

/// Pushes a share of the gradients to servers and pulls the parameters; the codec is of pushes.
CollectiveTime pushes_and_pulls(const PlanInput& input, const Groups& groups, const WireBytes& wire,
                                double share) {
  const Strategy& s = input.strategy;
  const double bytes =
      share * bytes_per_parameter(s.compute, s.optimizer).gradient * groups.parameters;
  const double pushed = wire.coded ? share * wire.contribution * groups.parameters : bytes;
  return server_time({groups.nodes, s.servers, s.beside_workers}, pushed, bytes, input.network);
}

/// Averages a share of the gradients in one operation.
CollectiveTime averaging(const PlanInput& input, const Groups& groups, double share = 1) {
  const Strategy& s = input.strategy;
  const WireBytes wire = wire_bytes(s.codec, groups.nodes);
  CollectiveTimes& times = *input.times;
  if (s.servers > 0) return pushes_and_pulls(input, groups, wire, share);
  if (wire.coded)
    return times.coded_reduction(groups.nodes, share * wire.contribution * groups.parameters,
                                 input.network) +
           times.coded_gather(groups.nodes, share * wire.mean * groups.parameters, input.network);
  const double bytes =
      share * bytes_per_parameter(s.compute, s.optimizer).gradient * groups.parameters;
  return times.of(schedule::Collective::all_reduce, s.algorithm, groups.nodes, bytes,
                  input.network);
}

/// Time to reduce among the replicas of one node, over its device links.
double inside_time(const PlanInput& input, const Groups& groups) {
  const Strategy& s = input.strategy;
  if (groups.inside < 2) return 0;
  const double bytes = bytes_per_parameter(s.compute, s.optimizer).gradient *
                       static_cast<double>(input.model.parameters()) / (s.tensor * s.pipeline);
  return ring_share(groups.inside) * bytes / input.device.inside_bytes_per_second;
}

/// Reduces a share of the gradients to the ranks that update with them.
CollectiveTime reduction(const PlanInput& input, const Groups& groups, double share = 1) {
  const Strategy& s = input.strategy;
  const WireBytes wire = wire_bytes(s.codec, groups.nodes);
  if (wire.coded)
    return input.times->coded_reduction(groups.nodes, share * wire.contribution * groups.parameters,
                                        input.network);
  const double bytes =
      share * bytes_per_parameter(s.compute, s.optimizer).gradient * groups.parameters;
  return input.times->of(schedule::Collective::reduce_scatter, "auto", groups.nodes, bytes,
                         input.network);
}

/// `smallest`: the time of kSmallestUnit of it, as an operation of its own.
WholeExchange whole(const CollectiveTime& time, const CollectiveTime& smallest) {
  return {.bandwidth = time.bandwidth,
          .latency = time.latency,
          .smallest_latency = std::max(0.0, smallest.total() - kSmallestUnit * time.bandwidth)};
}

/// ZeRO: reductions of gradients and gathers of parameters, in place of an all-reduce.
GradientExchange sharded(const PlanInput& input, const Groups& groups) {
  const Strategy& s = input.strategy;
  const double bytes = bytes_per_parameter(s.compute, s.optimizer).parameter * groups.parameters;
  const CollectiveTime reduce = reduction(input, groups);
  const auto gathering = [&](double share) {
    return input.times->of(schedule::Collective::all_gather, "auto", groups.nodes, share * bytes,
                           input.network);
  };
  const CollectiveTime gather = gathering(1);
  // Stage 1 accumulates passes before it reduces; the others have no memory for that.
  const double reductions = s.zero_stage == 1 ? 1 : s.accumulate;
  // Stage 3: forward and backward of each pass. Others: after the update, for the next forward.
  const double gathers = s.zero_stage == 3 ? 2 * s.accumulate : 1;
  return {.bandwidth = reductions * reduce.bandwidth + gathers * gather.bandwidth,
          .latency = reductions * reduce.latency + gathers * gather.latency,
          .wire_bytes = reductions * reduce.sent + gathers * gather.sent,
          .algorithm = reduce.algorithm,
          .reduce = whole(reduce, reduction(input, groups, kSmallestUnit)),
          .gather = whole(gather, gathering(kSmallestUnit))};
}

GradientExchange between_nodes(const PlanInput& input, const Groups& groups) {
  if (input.strategy.zero_stage > 0) return sharded(input, groups);
  const CollectiveTime time = averaging(input, groups);
  return {.bandwidth = time.bandwidth,
          .latency = time.latency,
          .wire_bytes = time.sent,
          .algorithm = time.algorithm,
          .reduce = whole(time, averaging(input, groups, kSmallestUnit))};
}

}  // namespace

GradientExchange gradient_exchange(const PlanInput& input) {
  const Groups groups = groups_of(input);
  GradientExchange exchange = between_nodes(input, groups);
  apply_measurement(input, exchange);
  const double inside = inside_time(input, groups);
  exchange.bandwidth += inside;
  exchange.reduce.bandwidth += inside;
  const double local = input.strategy.local_steps;
  exchange.bandwidth /= local;
  exchange.latency /= local;
  exchange.wire_bytes /= local;
  return exchange;
}

}  // namespace gradwire::plan
