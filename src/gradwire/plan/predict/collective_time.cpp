#include "gradwire/plan/predict/collective_time.h"

#include <algorithm>
#include <chrono>

#include "gradwire/schedule/cost/bus_bandwidth.h"

namespace gradwire::plan {
namespace {

/// Ports differ if the fastest one exceeds the slowest by more than this factor.
constexpr double kUnequal = 1.05;
/// Maximum number of segments of a message that are modeled: a plan asks for many times.
constexpr std::uint32_t kMaxModeledSegments = 64;

/// Returns true if `gradwire probe` measured ports of different rates, and all hosts take part.
bool unequal(const Network& network, int nodes) {
  if (!network.measured || network.measured->hosts() != nodes) return false;
  double fastest = 0;
  for (int host = 0; host < nodes; ++host)
    fastest = std::max(fastest, network.measured->host(host).port().bytes_per_second);
  return fastest > kUnequal * network.bytes_per_second;
}

Duration duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Fabric fabric_of(const Network& network, int nodes) {
  Fabric fabric{.hosts = nodes};
  fabric.port = {.latency = duration(network.latency), .bytes_per_second = network.goodput()};
  if (network.oversubscription > 1) {
    fabric.rack_hosts = (nodes + 1) / 2;
    fabric.oversubscription = network.oversubscription;
  }
  return fabric;
}

/// Devices reduce, not processors.
schedule::CostOptions costs_of(const Network& network) {
  schedule::CostOptions costs = schedule::executor_costs();
  costs.max_segments = kMaxModeledSegments;
  costs.per_segment = duration(network.per_message / 2);  // At each end.
  costs.reduce_bytes_per_second = 0;
  return costs;
}

CollectiveTime split(const OperationTime& time) {
  return {.bandwidth = time.port_seconds,
          .latency = time.seconds - time.port_seconds,
          .sent = time.port_bytes,
          .algorithm = time.algorithm};
}

/// The definition of bus bandwidth, solved for the time.
CollectiveTime bus_time(schedule::Collective collective, int nodes, double bytes,
                        const Network& network) {
  const double moved = schedule::bus_factor(collective, nodes) * bytes;
  return {.bandwidth = moved / network.goodput(),
          .latency = schedule::small_operation_hops(collective, nodes) * network.latency,
          .sent = moved,
          .algorithm = network.engine};
}

}  // namespace

CollectiveTime operator+(const CollectiveTime& a, const CollectiveTime& b) {
  return {a.bandwidth + b.bandwidth, a.latency + b.latency, a.sent + b.sent, a.algorithm};
}

OperationTimes& CollectiveTimes::times(const std::string& algorithm, int nodes,
                                       const Network& network) {
  const bool measured = unequal(network, nodes);
  const Key key{nodes,
                network.goodput(),
                network.latency,
                network.per_message,
                network.oversubscription,
                algorithm,
                measured ? network.name + network.source : ""};
  const auto [at, is_new] = times_.try_emplace(key);
  if (is_new && measured) at->second = measured_times({*network.measured, {}}, algorithm);
  if (is_new && !measured)
    at->second = fabric_times(fabric_of(network, nodes), algorithm, costs_of(network));
  return at->second;
}

CollectiveTime CollectiveTimes::of(schedule::Collective collective, const std::string& algorithm,
                                   int nodes, double bytes, const Network& network) {
  if (nodes < 2 || bytes <= 0) return {.algorithm = "none"};
  if (network.by_bus_bandwidth) return bus_time(collective, nodes, bytes, network);
  return split(times(algorithm, nodes, network)(collective, bytes));
}

CollectiveTime CollectiveTimes::coded_reduction(int nodes, double contribution,
                                                const Network& network) {
  return of(schedule::Collective::all_to_all, "direct", nodes, contribution, network);
}

CollectiveTime CollectiveTimes::coded_gather(int nodes, double mean, const Network& network) {
  return of(schedule::Collective::all_gather, "direct", nodes, mean, network);
}

double ServerNodes::busiest_share() const {
  const double each = static_cast<double>(beside_workers ? workers - 1 : workers) / servers;
  // Without a server beside it, a worker sends all of its gradient.
  return beside_workers && servers == workers ? each : std::max(1.0, each);
}

CollectiveTime server_time(const ServerNodes& nodes, double pushed, double pulled,
                           const Network& network) {
  const double bytes = nodes.busiest_share() * (pushed + pulled);
  return {.bandwidth = bytes / network.goodput(),
          .latency = 2 * (network.latency + nodes.workers * network.per_message),
          .sent = bytes,
          .algorithm = "parameter_server"};
}

}  // namespace gradwire::plan
