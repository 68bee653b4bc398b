#include "gradwire/plan/network.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/names.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire::plan {
namespace {

using schedule::fitted::kFastTcpShare;
using schedule::fitted::kRdmaShare;
using schedule::fitted::kTcpShare;

struct Entry {
  std::string_view name;
  double gigabits;
  double share;
  double latency;      ///< Seconds.
  double per_message;  ///< Seconds.
  std::string_view source;
};

constexpr std::string_view kTcp = "Ethernet with TCP: 1448 of 1538 bytes are payload at MTU 1500";
constexpr std::string_view kFast = "Ethernet with TCP, more than a core can fill: 85 %";
constexpr std::string_view kRdma = "RDMA: 84 % of the rate, as 42 of 50 GB/s were reached";

constexpr std::array<Entry, 14> kNetworks{{
    {"100mbe", 0.1, kTcpShare, 60e-6, 2e-6, kTcp},
    {"1gbe", 1, kTcpShare, 30e-6, 2e-6, kTcp},
    {"2.5gbe", 2.5, kTcpShare, 30e-6, 2e-6, kTcp},
    {"5gbe", 5, kTcpShare, 30e-6, 2e-6, kTcp},
    {"10gbe", 10, kTcpShare, 20e-6, 2e-6, kTcp},
    {"25gbe", 25, kTcpShare, 15e-6, 2e-6, kTcp},
    {"40gbe", 40, kFastTcpShare, 15e-6, 2e-6, kFast},
    {"50gbe", 50, kFastTcpShare, 15e-6, 2e-6, kFast},
    {"100gbe", 100, kFastTcpShare, 15e-6, 2e-6, kFast},
    {"200gbe", 200, kRdmaShare, 3e-6, 0.5e-6, kRdma},
    {"400gbe", 400, kRdmaShare, 3e-6, 0.5e-6, kRdma},
    {"ib_edr", 100, kRdmaShare, 2e-6, 0.3e-6, kRdma},
    {"ib_hdr", 200, kRdmaShare, 2e-6, 0.3e-6, kRdma},
    {"ib_ndr", 400, kRdmaShare, 2e-6, 0.3e-6, kRdma},
}};

struct Alias {
  std::string_view name, meant;
};
constexpr std::array<Alias, 9> kAliases{{{"100mb", "100mbe"},
                                         {"1g", "1gbe"},
                                         {"2.5g", "2.5gbe"},
                                         {"5g", "5gbe"},
                                         {"10g", "10gbe"},
                                         {"25g", "25gbe"},
                                         {"40g", "40gbe"},
                                         {"100g", "100gbe"},
                                         {"ib", "ib_hdr"}}};

Network entry_of(const Entry& entry) {
  return {.name = std::string(entry.name),
          .bytes_per_second = entry.gigabits * 1e9 / 8,
          .goodput_share = entry.share,
          .latency = entry.latency,
          .per_message = entry.per_message,
          .source = std::string(entry.source)};
}

/// Returns a network of any rate, otherwise like the next slower one of the catalogue.
Network network_of_rate(const std::string& text, double bytes_per_second) {
  const Entry* like = kNetworks.data();
  for (const Entry& entry : kNetworks) {
    if (entry.gigabits * 1e9 / 8 <= bytes_per_second && !entry.name.starts_with("ib"))
      like = &entry;
  }
  Network network = entry_of(*like);
  network.name = text;
  network.bytes_per_second = bytes_per_second;
  return network;
}

}  // namespace

double Network::goodput() const {
  return bytes_per_second * goodput_share * (1 + further_card * (cards - 1));
}

std::vector<std::string_view> network_names() {
  return names_of(kNetworks);
}

Network network_of(const topology::Topology& topology) {
  Network network{.name = fmt::format("{} hosts, measured", topology.hosts()),
                  .bytes_per_second = topology.host(0).port().bytes_per_second,
                  .source = "gradwire probe"};
  std::vector<double> latencies;
  for (int host = 0; host < topology.hosts(); ++host) {
    const topology::Link port = topology.host(host).port();
    network.bytes_per_second = std::min(network.bytes_per_second, port.bytes_per_second);
    latencies.push_back(std::chrono::duration<double>(port.latency).count());
  }
  std::ranges::sort(latencies);
  network.latency = latencies[latencies.size() / 2];
  network.measured = topology;
  return network;
}

Network network_named(const std::string& name) {
  const Alias* const alias = find_named(kAliases, name);
  if (const Entry* const entry = find_named(kNetworks, alias ? alias->meant : name))
    return entry_of(*entry);
  if (std::filesystem::is_regular_file(name)) {
    const topology::Topology topology = topology_of(value_or_throw(topology::read_cluster(name)));
    if (topology.hosts() < 2) {
      refuse(
          "{}: gradwire probe found one host, so it measured no network; "
          "probe several, or name the network",
          name);
    }
    Network network = network_of(topology);
    network.source = "gradwire probe: " + name;
    return network;
  }
  const Result<double> rate = parse_rate(name);
  if (rate && *rate > 0) return network_of_rate(name, *rate);
  refuse_name("network", name, network_names(),
              "; or a rate such as 40Gb/s; or the file of gradwire probe");
}

}  // namespace gradwire::plan
