#include "gradwire/cli/probe/report.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/units.h"

namespace gradwire::cli {
namespace {

constexpr std::size_t kHostsInFull = 16;
constexpr std::size_t kWorstPairs = 20;

std::string name_of(const topology::Cluster& cluster, int host) {
  return cluster.hosts[static_cast<std::size_t>(host)].name;
}

std::string rail_name(const topology::Cluster& cluster, const topology::MeasuredPath& path) {
  const auto& rails = cluster.hosts[static_cast<std::size_t>(path.from)].rails;
  return rails[static_cast<std::size_t>(path.rail)].interface;
}

/// 0: not measured.
std::string rate_of(double bytes_per_second) {
  return bytes_per_second > 0 ? format_rate(bytes_per_second) : "-";
}

std::string hosts_table(const topology::Cluster& cluster) {
  std::string text =
      fmt::format("{:20} {:>5} {:>5}  {:24} {:>12} {:>14} {:>22}\n", "host", "ranks", "cores",
                  "rails (rate, MTU)", "all at once", "inside", "clock less the first's");
  for (const topology::MeasuredHost& host : cluster.hosts) {
    std::string rails;
    for (const topology::MeasuredRail& rail : host.rails) {
      rails += fmt::format("{}{} {} {}", rails.empty() ? "" : ", ", rail.interface,
                           rate_of(rail.bytes_per_second), rail.mtu);
    }
    const std::string inside = host.inside
                                   ? fmt::format("{} {}", format_duration(host.inside->latency),
                                                 format_rate(host.inside->bytes_per_second))
                                   : "-";
    text += fmt::format(
        "{:20} {:>5} {:>5}  {:24} {:>12} {:>14} {:>22}\n", host.name, host.ranks, host.cores, rails,
        rate_of(host.together_bytes_per_second), inside,
        fmt::format("{:+.1f} us (+-{:.1f})", static_cast<double>(host.clock_offset.count()) / 1e3,
                    static_cast<double>(host.clock_uncertainty.count()) / 1e3));
  }
  return text;
}

std::string path_line(const topology::Cluster& cluster, const topology::MeasuredPath& path) {
  const char* hole = topology::is_black_hole(cluster, path) ? " (!)" : "";
  const std::string packet =
      path.largest_packet > 0 ? fmt::format("{}{}", path.largest_packet, hole) : "no datagrams";
  return fmt::format("{:20} {:20} {:10} {:>12} {:>10} {:>10} {:>14} {:>7.2f} %\n",
                     name_of(cluster, path.from), name_of(cluster, path.to),
                     rail_name(cluster, path), rate_of(path.bytes_per_second),
                     format_duration(path.latency), format_duration(path.shortest_latency), packet,
                     100 * path.loss);
}

}  // namespace

std::string describe_cluster(const topology::Cluster& cluster) {
  std::string text = hosts_table(cluster);
  std::vector<topology::MeasuredPath> paths = cluster.paths;
  if (cluster.hosts.size() > kHostsInFull && paths.size() > kWorstPairs) {
    std::ranges::stable_sort(paths, {}, &topology::MeasuredPath::bytes_per_second);
    paths.resize(kWorstPairs);
    text += fmt::format("\nthe slowest {} of all pairs:", kWorstPairs);
  }
  if (paths.empty()) return text;
  text += fmt::format("\n{:20} {:20} {:10} {:>12} {:>10} {:>10} {:>14} {:>9}\n", "from", "to",
                      "rail", "rate", "latency", "shortest", "largest packet", "loss");
  for (const topology::MeasuredPath& path : paths) text += path_line(cluster, path);
  if (std::ranges::any_of(paths,
                          [&](const auto& p) { return topology::is_black_hole(cluster, p); })) {
    text +=
        "\n(!) larger packets are lost on the path, although both ends send up to their MTU. TCP "
        "stalls there, so the rate was not measured. Run gradwire doctor for a fix.\n";
  }
  return text;
}

}  // namespace gradwire::cli
