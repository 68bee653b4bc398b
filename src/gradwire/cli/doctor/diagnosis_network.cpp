#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/units.h"
#include "gradwire/cli/doctor/affected_paths.h"
#include "gradwire/cli/doctor/diagnosis.h"

namespace gradwire::cli {
namespace {

using Outcome = Reachability::Outcome;

/// Share of lost packets on an idle network at which TCP loses about half of its speed.
constexpr double kLossThreshold = 0.001;

/// Paths below this share of the fastest path's rate on the same rail are slow.
constexpr double kSlow = 0.6;

/// Paths above this multiple of the lowest latency on the same rail, and above kFarLatency, are
/// far.
constexpr int kFar = 5;
constexpr Duration kFarLatency = std::chrono::microseconds(500);

constexpr Duration kClocksApart = std::chrono::milliseconds(50);

std::vector<std::string> names_of(const ClusterReport& cluster_report) {
  std::vector<std::string> names;
  for (const HostReport& report : cluster_report.reports) names.push_back(report.name);
  return names;
}

const RailInfo* rail_of(const ClusterReport& cluster_report, int host, int rail) {
  const auto& info = cluster_report.reports[static_cast<std::size_t>(host)].info;
  const auto number = static_cast<std::size_t>(rail);
  return info && number < info->rails.size() ? &info->rails[number] : nullptr;
}

/// One ordered pair of hosts over one rail, with both ends.
struct Path {
  int from;
  const Reachability& reach;
  const RailInfo& here;
  const RailInfo& there;
};

std::vector<Path> paths_of(const ClusterReport& cluster_report) {
  std::vector<Path> paths;
  const int hosts = static_cast<int>(cluster_report.reports.size());
  for (int from = 0; from < hosts; ++from) {
    const auto& reach = cluster_report.reports[static_cast<std::size_t>(from)].reach;
    if (!reach) continue;
    for (const Reachability& one : *reach) {
      if (one.to < 0 || one.to >= hosts) continue;
      const RailInfo* here = rail_of(cluster_report, from, one.rail);
      const RailInfo* there = rail_of(cluster_report, one.to, one.rail);
      if (here != nullptr && there != nullptr) paths.push_back({from, one, *here, *there});
    }
  }
  return paths;
}

/// The port that the guides open in firewalls.
constexpr int kUsualPort = 29400;

/// How to let the connections of a job through on these hosts.
std::string open_port(const ClusterReport& cluster_report, const std::string& interface,
                      const std::vector<std::string>& hosts) {
  const bool has_port = cluster_report.port > 0;
  const int port = has_port ? cluster_report.port : kUsualPort;
  return fmt::format(
      "{}allow connections to it on {}: nft insert rule inet filter input iifname \"{}\" tcp dport "
      "{} accept (or iptables -I INPUT -i {} -p tcp --dport {} -j ACCEPT)",
      has_port
          ? fmt::format("the job's port is {}; ", port)
          : fmt::format("run jobs with --port {}, so that they need that port only, and ", port),
      fmt::join(hosts, ", "), interface, port, interface, port);
}

std::string remedy_for(const ClusterReport& cluster_report, Outcome outcome, const RailInfo& there,
                       const std::vector<std::string>& hosts) {
  switch (outcome) {
    case Outcome::no_answer:
      return "a firewall drops the packets, or the interfaces are not in one network (choose with "
             "--interface); " +
             open_port(cluster_report, there.interface, hosts);
    case Outcome::refused:
      return "the doctor listens there, so a firewall rejects the connection; " +
             open_port(cluster_report, there.interface, hosts);
    case Outcome::no_route:
      return "choose interfaces of one network on all hosts with --interface, or add a route (ip "
             "route add)";
    default:
      return fmt::format(
          "another machine or program has the address {} too (as container bridges do), or uses "
          "another secret: choose another interface with --interface",
          there.address);
  }
}

/// Connections that fail alike.
struct Unreached {
  std::vector<HostsFromTo> paths;
  std::set<int> from, to;
  const Path* example = nullptr;
};

std::vector<std::string> names_of(const ClusterReport& cluster_report, const std::set<int>& hosts) {
  std::vector<std::string> names;
  for (const int host : hosts) {
    names.push_back(cluster_report.reports[static_cast<std::size_t>(host)].name);
  }
  return names;
}

void add_unreached(const ClusterReport& cluster_report, const std::vector<Path>& paths,
                   std::vector<Finding>& findings) {
  std::map<std::pair<int, Outcome>, Unreached> groups;
  std::vector<HostsFromTo> all;
  for (const Path& path : paths) {
    if (path.reach.rail == 0) all.emplace_back(path.from, path.reach.to);
    if (path.reach.outcome == Outcome::reached) continue;
    Unreached& group = groups[{path.reach.rail, path.reach.outcome}];
    group.paths.emplace_back(path.from, path.reach.to);
    group.from.insert(path.from);
    group.to.insert(path.reach.to);
    group.example = &path;
  }
  for (const auto& [key, group] : groups) {
    const RailInfo& there = group.example->there;
    const auto targets = names_of(cluster_report, group.to);
    const bool is_one = group.to.size() == 1;
    const std::string example = fmt::format(
        "{} cannot reach {} at {} ({}): {}",
        is_one ? fmt::format("{}", fmt::join(names_of(cluster_report, group.from), ", "))
               : names_of(cluster_report)[static_cast<std::size_t>(group.example->from)],
        names_of(cluster_report)[static_cast<std::size_t>(group.example->reach.to)], there.endpoint,
        there.interface, group.example->reach.error);
    const std::string what =
        is_one ? example
               : fmt::format("there are no connections {} over {}: for example, {}",
                             name_paths(group.paths, all, names_of(cluster_report)),
                             there.interface, example);
    findings.push_back({true, what, remedy_for(cluster_report, key.second, there, targets)});
  }
}

/// The affected paths of one rail.
struct Affected {
  std::vector<HostsFromTo> wrong;
  std::vector<HostsFromTo> all;
  const Path* worst = nullptr;
};

template <class IsWrong, class IsWorse>
std::map<int, Affected> affected_by_rail(const std::vector<Path>& paths, IsWrong is_wrong,
                                         IsWorse is_worse) {
  std::map<int, Affected> rails;
  for (const Path& path : paths) {
    if (path.reach.outcome != Outcome::reached) continue;
    Affected& rail = rails[path.reach.rail];
    rail.all.emplace_back(path.from, path.reach.to);
    if (!is_wrong(path)) continue;
    rail.wrong.emplace_back(path.from, path.reach.to);
    if (rail.worst == nullptr || is_worse(path, *rail.worst)) rail.worst = &path;
  }
  std::erase_if(rails, [](const auto& rail) { return rail.second.wrong.empty(); });
  return rails;
}

int min_mtu(const Path& path) {
  return std::min({path.here.mtu, path.there.mtu, topology::kMaxPacketBytes});
}

void add_black_holes(const ClusterReport& cluster_report, const std::vector<Path>& paths,
                     std::vector<Finding>& findings) {
  const auto is_hole = [](const Path& path) {
    return path.reach.largest_packet > 0 && path.reach.largest_packet < min_mtu(path);
  };
  const auto smaller = [](const Path& a, const Path& b) {
    return a.reach.largest_packet < b.reach.largest_packet;
  };
  for (const auto& [rail, affected] : affected_by_rail(paths, is_hole, smaller)) {
    const Path& worst = *affected.worst;
    findings.push_back(
        {true,
         fmt::format("packets of more than {} bytes are lost {}, over {}, although the interfaces "
                     "have an MTU of {}: connections are established, but stall under load",
                     worst.reach.largest_packet,
                     name_paths(affected.wrong, affected.all, names_of(cluster_report)),
                     worst.here.interface, min_mtu(worst)),
         fmt::format("raise the MTU of the switch or tunnel in between to {}, or lower it on these "
                     "hosts: ip link set dev {} mtu {}",
                     min_mtu(worst), worst.here.interface, worst.reach.largest_packet)});
  }
}

void add_losses(const ClusterReport& cluster_report, const std::vector<Path>& paths,
                std::vector<Finding>& findings) {
  const auto loses = [](const Path& path) { return path.reach.loss() >= kLossThreshold; };
  const auto more = [](const Path& a, const Path& b) { return a.reach.loss() > b.reach.loss(); };
  for (const auto& [rail, affected] : affected_by_rail(paths, loses, more)) {
    const Path& worst = *affected.worst;
    findings.push_back(
        {true,
         fmt::format(
             "up to {:.2f} % of packets ({} of {}) are lost {}, over {}, on a nearly idle network",
             100 * worst.reach.loss(), worst.reach.lost, worst.reach.datagrams,
             name_paths(affected.wrong, affected.all, names_of(cluster_report)),
             worst.here.interface),
         fmt::format("check cable, connector and switch port: ethtool {0}; ethtool -S {0} | grep "
                     "-iE 'err|drop|crc'; tc -s qdisc show dev {0}",
                     worst.here.interface)});
  }
}

void add_detours(const std::vector<Path>& paths, const ClusterReport& cluster_report,
                 std::vector<Finding>& findings) {
  std::map<int, const Path*> first_of_host;
  for (const Path& path : paths) {
    if (path.reach.detour) first_of_host.emplace(path.from, &path);
  }
  for (const auto& [host, path] : first_of_host) {
    findings.push_back(
        {true,
         fmt::format("packets from {} ({}) of {} to {} leave by another interface, because two "
                     "interfaces are in one subnet",
                     path->here.interface, path->here.address,
                     cluster_report.reports[static_cast<std::size_t>(host)].name,
                     path->there.address),
         "put the interfaces into different subnets, or set on every host: sysctl -w "
         "net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"});
  }
}

void add_silent_datagrams(const ClusterReport& cluster_report, const std::vector<Path>& paths,
                          std::vector<Finding>& findings) {
  const auto silent = [](const Path& path) {
    return path.reach.has_echo && path.reach.largest_packet == 0;
  };
  const auto never = [](const Path&, const Path&) { return false; };
  for (const auto& [rail, affected] : affected_by_rail(paths, silent, never)) {
    findings.push_back(
        {false,
         fmt::format("datagrams (UDP) do not get through {}, over {}: maximum packet size and "
                     "losses are unknown",
                     name_paths(affected.wrong, affected.all, names_of(cluster_report)),
                     affected.worst->here.interface),
         "jobs do not need UDP; to let the doctor measure, allow it between the hosts"});
  }
}

/// Measurements of one rail.
struct Speeds {
  std::vector<HostsFromTo> all, slow, far;
  double fastest = 0, slowest = 0;
  Duration nearest = Duration::max(), farthest = {};
};

Speeds speeds_of(const topology::Cluster& cluster, int rail) {
  Speeds speeds;
  const auto each = [&](auto act) {
    for (const topology::MeasuredPath& path : cluster.paths) {
      if (path.rail == rail && path.bytes_per_second > 0) act(path);
    }
  };
  each([&](const topology::MeasuredPath& path) {
    speeds.all.emplace_back(path.from, path.to);
    speeds.fastest = std::max(speeds.fastest, path.bytes_per_second);
    speeds.nearest = std::min(speeds.nearest, path.shortest_latency);
    speeds.farthest = std::max(speeds.farthest, path.shortest_latency);
  });
  speeds.slowest = speeds.fastest;
  each([&](const topology::MeasuredPath& path) {
    speeds.slowest = std::min(speeds.slowest, path.bytes_per_second);
    if (path.bytes_per_second < kSlow * speeds.fastest) {
      speeds.slow.emplace_back(path.from, path.to);
    }
    if (path.shortest_latency > std::max(kFarLatency, kFar * speeds.nearest)) {
      speeds.far.emplace_back(path.from, path.to);
    }
  });
  return speeds;
}

/// Adds paths that are slow compared with what their own network cards have negotiated.
void add_broken_promises(const ClusterReport& cluster_report, int rail,
                         std::vector<Finding>& findings) {
  for (const topology::MeasuredPath& path : cluster_report.cluster->paths) {
    const RailInfo* here = rail_of(cluster_report, path.from, path.rail);
    const RailInfo* there = rail_of(cluster_report, path.to, path.rail);
    if (path.rail != rail || here == nullptr || there == nullptr) continue;
    const int megabits = std::min(here->megabits, there->megabits);
    const double promised = megabits * 1e6 / 8;
    if (path.bytes_per_second <= 0 || path.bytes_per_second >= kSlow * promised) continue;
    const auto names = names_of(cluster_report);
    findings.push_back(
        {true,
         fmt::format("{} {}, over {}, on links of {}", format_rate(path.bytes_per_second),
                     name_paths({{path.from, path.to}}, {}, names), here->interface,
                     format_rate(promised)),
         fmt::format("check cable and switch port (ethtool -S {0}), rate limits (tc qdisc show dev "
                     "{0}), other traffic on the link, and CPU load (top)",
                     here->interface)});
  }
}

/// Adds hosts whose network card has negotiated a lower rate than the fastest.
void add_slow_cards(const ClusterReport& cluster_report, int rail, std::vector<Finding>& findings) {
  int max_megabits = 0;
  for (int host = 0; host < static_cast<int>(cluster_report.reports.size()); ++host) {
    const RailInfo* info = rail_of(cluster_report, host, rail);
    if (info != nullptr) max_megabits = std::max(max_megabits, info->megabits);
  }
  for (int host = 0; host < static_cast<int>(cluster_report.reports.size()); ++host) {
    const RailInfo* info = rail_of(cluster_report, host, rail);
    if (info == nullptr || info->megabits == 0 || info->megabits == max_megabits) continue;
    findings.push_back(
        {true,
         fmt::format("{} of {} has negotiated {}, others {}", info->interface,
                     cluster_report.reports[static_cast<std::size_t>(host)].name,
                     format_rate(info->megabits * 1e6 / 8), format_rate(max_megabits * 1e6 / 8)),
         fmt::format("check cable and switch port, then: ethtool -s {} autoneg on",
                     info->interface)});
  }
}

void add_slow_paths(const ClusterReport& cluster_report, const std::string& interface,
                    const Speeds& speeds, std::vector<Finding>& findings) {
  const auto names = names_of(cluster_report);
  if (!speeds.slow.empty()) {
    findings.push_back(
        {true,
         fmt::format("the link is slow {}, over {}: {} where others have {}",
                     name_paths(speeds.slow, speeds.all, names), interface,
                     format_rate(speeds.slowest), format_rate(speeds.fastest)),
         fmt::format("check the negotiated rate (ethtool {0} | grep Speed), cable and switch port, "
                     "rate limits (tc qdisc show dev {0}), and other traffic on the link; if the "
                     "link must stay slow, gradwire probe writes a topology.json for the tuner",
                     interface)});
  }
  if (!speeds.far.empty()) {
    findings.push_back(
        {false,
         fmt::format("the latency is high {}, over {}: {} where others have {}",
                     name_paths(speeds.far, speeds.all, names), interface,
                     format_duration(speeds.farthest), format_duration(speeds.nearest)),
         "put the hosts on one switch; check interrupt coalescing (ethtool -c) and power saving"});
  }
}

void add_clocks(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  const auto& hosts = cluster_report.cluster->hosts;
  for (std::size_t i = 0; i < hosts.size() && i < cluster_report.reports.size(); ++i) {
    const topology::MeasuredHost& host = hosts[i];
    if (std::chrono::abs(host.clock_offset) < kClocksApart + host.clock_uncertainty) continue;
    const std::string& name = cluster_report.reports[i].name;
    findings.push_back(
        {false,
         fmt::format("the clock of {} is {} {} that of {}", name,
                     format_duration(std::chrono::abs(host.clock_offset)),
                     host.clock_offset > Duration::zero() ? "ahead of" : "behind",
                     cluster_report.reports.front().name),
         "synchronize the hosts' clocks with NTP: timedatectl set-ntp true, or chronyc makestep"});
  }
}

}  // namespace

std::vector<Finding> diagnose_reach(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  const std::vector<Path> paths = paths_of(cluster_report);
  add_unreached(cluster_report, paths, findings);
  add_detours(paths, cluster_report, findings);
  add_black_holes(cluster_report, paths, findings);
  add_losses(cluster_report, paths, findings);
  add_silent_datagrams(cluster_report, paths, findings);
  return findings;
}

std::string measured_speeds(const ClusterReport& cluster_report) {
  if (!cluster_report.cluster) return "";
  std::string text;
  for (int rail = 0; rail < static_cast<int>(max_rails(cluster_report)); ++rail) {
    const RailInfo* first = rail_of(cluster_report, 0, rail);
    const Speeds speeds = speeds_of(*cluster_report.cluster, rail);
    if (first == nullptr || speeds.all.empty()) continue;
    const auto between = [](const std::string& low, const std::string& high) {
      return low == high ? low : fmt::format("{} to {}", low, high);
    };
    text += fmt::format("measured over {}: {}, latency {}\n", first->interface,
                        between(format_rate(speeds.slowest), format_rate(speeds.fastest)),
                        between(format_duration(speeds.nearest), format_duration(speeds.farthest)));
  }
  return text;
}

std::vector<Finding> diagnose_speed(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  const std::size_t rails = max_rails(cluster_report);
  for (int rail = 0; rail < static_cast<int>(rails); ++rail) {
    add_slow_cards(cluster_report, rail, findings);
  }
  // Both number the hosts alike only if there is one process per host.
  if (!cluster_report.cluster ||
      cluster_report.cluster->hosts.size() != cluster_report.reports.size()) {
    return findings;
  }
  for (int rail = 0; rail < static_cast<int>(rails); ++rail) {
    const RailInfo* first = rail_of(cluster_report, 0, rail);
    if (first == nullptr) break;
    const Speeds speeds = speeds_of(*cluster_report.cluster, rail);
    add_slow_paths(cluster_report, first->interface, speeds, findings);
    // One finding per cause: if the links differ, add_slow_paths() has reported it.
    if (speeds.slow.empty()) add_broken_promises(cluster_report, rail, findings);
  }
  add_clocks(cluster_report, findings);
  return findings;
}

}  // namespace gradwire::cli
