#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/units.h"
#include "gradwire/cli/doctor/diagnosis.h"
#include "gradwire/net/receive_window.h"

namespace gradwire::cli {
namespace {

constexpr int kFewFiles = 1024;
constexpr int kSmallBuffer = 1 << 20;

using Names = std::vector<std::string>;

std::string joined(const Names& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// Returns true if one of the host's interfaces has the address.
bool has_address(const HostInfo& info, const std::string& address) {
  return info.interfaces.find("(" + address) != std::string::npos ||
         info.interfaces.find(" " + address) != std::string::npos;
}

/// Problems with a name, and the hosts that have them.
struct NameTrouble {
  Names unknown_on, loopback_on, elsewhere_on;
  std::string error, address;
};

NameTrouble trouble_with(const ClusterReport& cluster_report, std::size_t named) {
  NameTrouble trouble;
  const auto& reports = cluster_report.reports;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (!reports[i].info || named >= reports[i].info->names.size()) continue;
    const ResolvedName& name = reports[i].info->names[named];
    const auto& target = reports[named].info;
    if (!name.error.empty()) {
      trouble.unknown_on.push_back(reports[i].name);
      trouble.error = name.error;
    } else if (std::ranges::all_of(name.addresses, is_loopback) && reports.size() > 1) {
      // A host's own name may resolve to loopback, unless rank 0 listens there.
      if (i != named || (named == 0 && is_loopback(reports[i].info->master))) {
        trouble.loopback_on.push_back(reports[i].name);
      }
      trouble.address = name.addresses.front();
    } else if (target && std::ranges::none_of(name.addresses, [&](const std::string& address) {
                 return has_address(*target, address) || is_loopback(address);
               })) {
      trouble.elsewhere_on.push_back(reports[i].name);
      trouble.address = name.addresses.front();
    }
  }
  return trouble;
}

/// Returns 2 * bandwidth * round-trip time of the fastest path, in bytes, which TCP must be able to
/// buffer.
double needed_buffer(const ClusterReport& cluster_report) {
  double max_bytes = kSmallBuffer;
  if (!cluster_report.cluster) return max_bytes;
  for (const topology::MeasuredPath& path : cluster_report.cluster->paths) {
    const double round_trip = 2 * std::chrono::duration<double>(path.shortest_latency).count();
    max_bytes = std::max(max_bytes, 2 * path.bytes_per_second * round_trip);
  }
  return max_bytes;
}

Finding small_buffer(const std::string& name, const char* setting, int limit, double needed) {
  const auto enough = static_cast<long>(std::max(needed, 6.0 * kSmallBuffer));
  return {true,
          fmt::format("{}: TCP may buffer only {} per connection ({}), but {} are needed", name,
                      format_bytes(static_cast<std::size_t>(limit)), setting,
                      format_bytes(static_cast<std::size_t>(needed))),
          fmt::format("on {}: sysctl -w {}=\"4096 131072 {}\" (and in /etc/sysctl.d for the next "
                      "boot)",
                      name, setting, enough)};
}

/// Adds hosts with a small net.core.rmem_max. Most systems have a small default, with little
/// effect: only a note.
void add_small_requests(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  Names small;
  int min_limit = net::ReceiveWindow::kRoom;
  for (const HostReport& report : cluster_report.reports) {
    const int limit = report.info ? report.info->max_requested_buffer : 0;
    if (limit == 0 || limit >= net::ReceiveWindow::kRoom) continue;
    small.push_back(report.name);
    min_limit = std::min(min_limit, limit);
  }
  if (small.empty()) return;
  findings.push_back(
      {false,
       fmt::format("{}: ranks request receive buffers of {} and get {} (net.core.rmem_max) until "
                   "the kernel's autotuning enlarges them",
                   joined(small), format_bytes(net::ReceiveWindow::kRoom),
                   format_bytes(static_cast<std::size_t>(min_limit))),
       fmt::format("on {}: sysctl -w net.core.rmem_max={} (and in /etc/sysctl.d for the next boot)",
                   joined(small), 4 * kSmallBuffer)});
}

/// Several ranks of a job may be on one host.
std::size_t count_hosts(const ClusterReport& cluster_report) {
  std::set<std::string> hosts;
  for (const HostReport& report : cluster_report.reports) {
    if (report.info) hosts.insert(report.info->host);
  }
  return hosts.size();
}

void add_rail_findings(const HostReport& report, std::size_t hosts,
                       std::vector<Finding>& findings) {
  const HostInfo& info = *report.info;
  const std::string choose =
      fmt::format("name the right ones with --interface (or GRADWIRE_INTERFACE); {} has {}",
                  report.name, info.interfaces);
  for (const std::string& problem : info.problems) {
    findings.push_back({true, fmt::format("{}: {}", report.name, problem), choose});
  }
  for (const std::string& problem : info.port_problems) {
    findings.push_back({true, fmt::format("{}: {}", report.name, problem),
                        fmt::format("on {}: ss -lntup shows what holds the port: stop it, or give "
                                    "the job another one with --port (or GRADWIRE_PORT)",
                                    report.name)});
  }
  if (info.rails.empty() && info.problems.empty()) {
    findings.push_back(
        {true, fmt::format("{} has no usable network interface", report.name), choose});
  }
  for (const RailInfo& rail : info.rails) {
    if (!rail.loopback || hosts < 2) continue;
    findings.push_back(
        {true,
         fmt::format("{} would use its loopback interface ({} {}), which other hosts cannot reach",
                     report.name, rail.interface, rail.address),
         choose + "; or name the first host's address on the network with --master-addr"});
  }
}

void add_faster_interfaces(const HostReport& report, std::vector<Finding>& findings) {
  for (const std::string& faster : report.info->faster) {
    findings.push_back({false,
                        fmt::format("{} would use {}, although {} is available", report.name,
                                    report.info->rails.front().interface, faster),
                        "name it on all hosts with --interface, or several to use them at once"});
  }
}

void add_shared_addresses(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  std::map<std::string, Names> holders;
  std::map<std::string, std::string> interfaces;
  std::set<std::pair<std::string, std::string>> seen;
  for (const HostReport& report : cluster_report.reports) {
    if (!report.info) continue;
    for (const RailInfo& rail : report.info->rails) {
      if (rail.loopback || !seen.insert({rail.address, report.info->host}).second) continue;
      holders[rail.address].push_back(report.name);
      interfaces[rail.address] = rail.interface;
    }
  }
  for (const auto& [address, names] : holders) {
    if (names.size() < 2) continue;
    findings.push_back(
        {true,
         fmt::format(
             "{} all have the address {} ({}): it belongs to a local bridge, or was assigned twice",
             joined(names), address, interfaces[address]),
         "choose another interface with --interface, or give each host a unique address"});
  }
}

/// Adds hosts whose interface of a rail has another MTU than most hosts.
void add_unequal_mtus(const ClusterReport& cluster_report, std::size_t rail,
                      std::vector<Finding>& findings) {
  std::map<int, Names> by_mtu;
  std::string interface;
  for (const HostReport& report : cluster_report.reports) {
    if (!report.info || rail >= report.info->rails.size()) continue;
    by_mtu[report.info->rails[rail].mtu].push_back(report.name);
    interface = report.info->rails[rail].interface;
  }
  if (by_mtu.size() < 2) return;
  // The most frequent MTU; the smallest one on a tie.
  const auto usual = std::ranges::max_element(
      by_mtu, [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::vector<std::string> parts;
  Names others;
  for (const auto& [mtu, names] : by_mtu) {
    parts.push_back(fmt::format("{} on {}", mtu, joined(names)));
    if (mtu != usual->first) others.insert(others.end(), names.begin(), names.end());
  }
  findings.push_back(
      {true,
       fmt::format("the MTU of {} differs between the hosts: {}", interface,
                   fmt::join(parts, "; ")),
       fmt::format("on {}: ip link set dev {} mtu {}", joined(others), interface, usual->first)});
}

void add_unequal_rails(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  std::set<std::size_t> counts;
  std::vector<std::string> parts;
  for (const HostReport& report : cluster_report.reports) {
    if (!report.info || report.info->rails.empty()) continue;
    counts.insert(report.info->rails.size());
    parts.push_back(fmt::format("{} on {}", report.info->rails.size(), report.name));
  }
  if (counts.size() < 2) return;
  findings.push_back({false,
                      fmt::format("the hosts have different numbers of usable interfaces: {}; a "
                                  "pair of hosts uses as many as both have",
                                  fmt::join(parts, ", ")),
                      "name the same ones on all hosts with --interface"});
}

}  // namespace

std::vector<Finding> diagnose_names(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  for (std::size_t host = 0; host < cluster_report.reports.size(); ++host) {
    const NameTrouble trouble = trouble_with(cluster_report, host);
    const std::string& name = cluster_report.reports[host].name;
    // The other hosts resolve the first host's name to find rank 0.
    const bool wrong = host == 0;
    const std::string fix = fmt::format(
        "add a line \"ADDRESS {}\" to /etc/hosts there (or to the DNS), or give addresses instead "
        "of names (--master-addr, or address= in the hostfile)",
        name);
    if (!trouble.unknown_on.empty()) {
      findings.push_back(
          {wrong, fmt::format("{}: {}", joined(trouble.unknown_on), trouble.error), fix});
    }
    if (!trouble.loopback_on.empty()) {
      findings.push_back({wrong,
                          fmt::format("on {} the name {} resolves to {}, the loopback interface",
                                      joined(trouble.loopback_on), name, trouble.address),
                          "correct the line in /etc/hosts there; " + fix});
    }
    if (!trouble.elsewhere_on.empty()) {
      findings.push_back(
          {wrong,
           fmt::format("on {} the name {} resolves to {}, which is not an address of that host",
                       joined(trouble.elsewhere_on), name, trouble.address),
           "correct the entry in /etc/hosts or the DNS; " + fix});
    }
  }
  return findings;
}

std::vector<Finding> diagnose_limits(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  const double buffer = needed_buffer(cluster_report);
  const auto connections =
      static_cast<int>(max_rails(cluster_report)) * std::max(cluster_report.ranks, 1);
  const int files = std::max(kFewFiles, 64 + 2 * connections);
  for (const HostReport& report : cluster_report.reports) {
    if (!report.info) continue;
    const HostInfo& info = *report.info;
    if (info.max_files < files) {
      findings.push_back(
          {true,
           fmt::format("{}: a process may open at most {} files and sockets (ulimit -Hn); a rank "
                       "may need {}",
                       report.name, info.max_files, files),
           fmt::format("on {}: add \"* hard nofile 65536\" to /etc/security/limits.conf, or "
                       "LimitNOFILE=65536 for the service that starts the ranks; then log in again",
                       report.name)});
    }
    if (info.max_receive_buffer < buffer) {
      findings.push_back(
          small_buffer(report.name, "net.ipv4.tcp_rmem", info.max_receive_buffer, buffer));
    }
    if (info.max_send_buffer < buffer) {
      findings.push_back(
          small_buffer(report.name, "net.ipv4.tcp_wmem", info.max_send_buffer, buffer));
    }
  }
  add_small_requests(cluster_report, findings);
  return findings;
}

std::vector<Finding> diagnose_interfaces(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  for (const HostReport& report : cluster_report.reports) {
    if (!report.info) continue;
    add_rail_findings(report, count_hosts(cluster_report), findings);
    if (!report.info->rails.empty()) add_faster_interfaces(report, findings);
  }
  add_shared_addresses(cluster_report, findings);
  for (std::size_t rail = 0; rail < max_rails(cluster_report); ++rail) {
    add_unequal_mtus(cluster_report, rail, findings);
  }
  add_unequal_rails(cluster_report, findings);
  return findings;
}

}  // namespace gradwire::cli
