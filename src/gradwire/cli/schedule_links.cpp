#include "gradwire/cli/schedule_links.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire::cli {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// "1Gb/s+400Mb/s"
std::vector<topology::Link> rails_of(std::string_view text, Duration latency) {
  std::vector<topology::Link> rails;
  for (std::string_view rate : split(text, '+')) {
    rails.push_back({latency, value_or_throw(parse_rate(rate))});
  }
  return rails;
}

/// Returns one host per entry of the list, or `count` hosts with its only entry.
std::vector<topology::Host> hosts_of(const LinkOptions& options, std::size_t count) {
  const Duration latency = value_or_throw(parse_duration(options.latency));
  const std::vector<std::string_view> listed = split(options.bandwidth, ',');
  if (listed.size() != 1 && listed.size() != count) {
    refuse("--bandwidth lists {} rates for {} hosts: give one rate for all hosts, or one per host",
           listed.size(), count);
  }
  std::vector<topology::Host> hosts(count);
  for (std::size_t i = 0; i < count; ++i) {
    hosts[i].rails = rails_of(listed[listed.size() == 1 ? 0 : i], latency);
  }
  return hosts;
}

topology::Topology from_file(const LinkOptions& options) {
  topology::Topology topology =
      topology_of(value_or_throw(topology::read_cluster(options.topology_file)));
  if (options.ranks && *options.ranks != topology.ranks()) {
    refuse("{} has {} ranks, not {}: omit --ranks", options.topology_file, topology.ranks(),
           *options.ranks);
  }
  return topology;
}

}  // namespace

topology::Topology topology_of(const LinkOptions& options) {
  if (!options.topology_file.empty()) return from_file(options);
  const int ranks = options.ranks.value_or(4);
  std::vector<int> host_of;
  for (Rank rank = 0; rank < ranks; ++rank) host_of.push_back(rank / options.per_host);
  return topology::Topology(hosts_of(options, static_cast<std::size_t>(host_of.back() + 1)),
                            host_of);
}

std::string describe(const topology::Topology& topology) {
  double slowest = topology.host(0).port().bytes_per_second;
  double fastest = slowest;
  Duration latency = Duration::zero();
  for (int host = 0; host < topology.hosts(); ++host) {
    const topology::Link port = topology.host(host).port();
    slowest = std::min(slowest, port.bytes_per_second);
    fastest = std::max(fastest, port.bytes_per_second);
    latency = std::max(latency, port.latency);
  }
  const std::string rates =
      slowest == fastest ? format_rate(fastest)
                         : fmt::format("{} to {}", format_rate(slowest), format_rate(fastest));
  const std::string_view plural = topology.hosts() == 1 ? "host" : "hosts";
  return fmt::format("{} {} of {} and {}", topology.hosts(), plural, rates,
                     format_duration(latency));
}

}  // namespace gradwire::cli
