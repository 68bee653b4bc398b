#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/units.h"
#include "gradwire/cli/doctor/diagnosis.h"
#include "gradwire/net/receive_window.h"

namespace gradwire {
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
bool has_address(const HostFacts& facts, const std::string& address) {
  return facts.interfaces.find("(" + address) != std::string::npos ||
         facts.interfaces.find(" " + address) != std::string::npos;
}

/// Problems with a name, and the hosts that have them.
struct NameTrouble {
  Names unknown_on, loopback_on, elsewhere_on;
  std::string error, address;
};

NameTrouble trouble_with(const Examination& examination, std::size_t named) {
  NameTrouble trouble;
  const auto& patients = examination.patients;
  for (std::size_t i = 0; i < patients.size(); ++i) {
    if (!patients[i].facts || named >= patients[i].facts->names.size()) continue;
    const NameFacts& name = patients[i].facts->names[named];
    const auto& target = patients[named].facts;
    if (!name.error.empty()) {
      trouble.unknown_on.push_back(patients[i].name);
      trouble.error = name.error;
    } else if (std::ranges::all_of(name.addresses, is_loopback) && patients.size() > 1) {
      // A host's own name may resolve to loopback, unless the others find rank 0 by that name.
      if (i != named || named == 0) trouble.loopback_on.push_back(patients[i].name);
      trouble.address = name.addresses.front();
    } else if (target && std::ranges::none_of(name.addresses, [&](const std::string& address) {
                 return has_address(*target, address) || is_loopback(address);
               })) {
      trouble.elsewhere_on.push_back(patients[i].name);
      trouble.address = name.addresses.front();
    }
  }
  return trouble;
}

/// Returns 2 * bandwidth * round-trip time of the fastest path, in bytes, which TCP must be able to
/// buffer.
double needed_buffer(const Examination& examination) {
  double most = kSmallBuffer;
  if (!examination.cluster) return most;
  for (const MeasuredPath& path : examination.cluster->paths) {
    const double round_trip = 2 * std::chrono::duration<double>(path.shortest_latency).count();
    most = std::max(most, 2 * path.bytes_per_second * round_trip);
  }
  return most;
}

Finding small_buffer(const std::string& name, const char* setting, int most, double needed) {
  const auto enough = static_cast<long>(std::max(needed, 6.0 * kSmallBuffer));
  return {true,
          fmt::format("{}: TCP may buffer only {} per connection ({}), but {} are needed", name,
                      format_bytes(static_cast<std::size_t>(most)), setting,
                      format_bytes(static_cast<std::size_t>(needed))),
          fmt::format("on {}: sysctl -w {}=\"4096 131072 {}\" (and in /etc/sysctl.d for the next "
                      "boot)",
                      name, setting, enough)};
}

/// Adds hosts with a small net.core.rmem_max. Most systems have a small default, with little
/// effect: only a note.
void add_small_requests(const Examination& examination, std::vector<Finding>& findings) {
  Names small;
  int least = ReceiveWindow::kRoom;
  for (const Patient& patient : examination.patients) {
    const int most = patient.facts ? patient.facts->most_asked_for : 0;
    if (most == 0 || most >= ReceiveWindow::kRoom) continue;
    small.push_back(patient.name);
    least = std::min(least, most);
  }
  if (small.empty()) return;
  findings.push_back(
      {false,
       fmt::format("{}: ranks request receive buffers of {} and get {} (net.core.rmem_max) until "
                   "the kernel's autotuning enlarges them",
                   joined(small), format_bytes(ReceiveWindow::kRoom),
                   format_bytes(static_cast<std::size_t>(least))),
       fmt::format("on {}: sysctl -w net.core.rmem_max={} (and in /etc/sysctl.d for the next boot)",
                   joined(small), 4 * kSmallBuffer)});
}

/// Several ranks of a job may be on one host.
std::size_t count_hosts(const Examination& examination) {
  std::set<std::string> hosts;
  for (const Patient& patient : examination.patients) {
    if (patient.facts) hosts.insert(patient.facts->host);
  }
  return hosts.size();
}

void add_rail_findings(const Patient& patient, std::size_t hosts, std::vector<Finding>& findings) {
  const HostFacts& facts = *patient.facts;
  const std::string choose =
      fmt::format("name the right ones with --interface (or GRADWIRE_INTERFACE); {} has {}",
                  patient.name, facts.interfaces);
  for (const std::string& problem : facts.problems) {
    findings.push_back({true, fmt::format("{}: {}", patient.name, problem), choose});
  }
  for (const std::string& problem : facts.port_problems) {
    findings.push_back({true, fmt::format("{}: {}", patient.name, problem),
                        fmt::format("on {}: ss -lntup shows what holds the port: stop it, or give "
                                    "the job another one with --port (or GRADWIRE_PORT)",
                                    patient.name)});
  }
  if (facts.rails.empty() && facts.problems.empty()) {
    findings.push_back(
        {true, fmt::format("{} has no usable network interface", patient.name), choose});
  }
  for (const RailFacts& rail : facts.rails) {
    if (!rail.loopback || hosts < 2) continue;
    findings.push_back(
        {true,
         fmt::format("{} would use its loopback interface ({} {}), which other hosts cannot reach",
                     patient.name, rail.interface, rail.address),
         choose + "; or name the first host's address on the network with --master-addr"});
  }
}

void add_faster_interfaces(const Patient& patient, std::vector<Finding>& findings) {
  for (const std::string& faster : patient.facts->faster) {
    findings.push_back({false,
                        fmt::format("{} would use {}, although {} is available", patient.name,
                                    patient.facts->rails.front().interface, faster),
                        "name it on all hosts with --interface, or several to use them at once"});
  }
}

void add_shared_addresses(const Examination& examination, std::vector<Finding>& findings) {
  std::map<std::string, Names> holders;
  std::map<std::string, std::string> interfaces;
  std::set<std::pair<std::string, std::string>> seen;
  for (const Patient& patient : examination.patients) {
    if (!patient.facts) continue;
    for (const RailFacts& rail : patient.facts->rails) {
      if (rail.loopback || !seen.insert({rail.address, patient.facts->host}).second) continue;
      holders[rail.address].push_back(patient.name);
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
void add_unequal_mtus(const Examination& examination, std::size_t rail,
                      std::vector<Finding>& findings) {
  std::map<int, Names> by_mtu;
  std::string interface;
  for (const Patient& patient : examination.patients) {
    if (!patient.facts || rail >= patient.facts->rails.size()) continue;
    by_mtu[patient.facts->rails[rail].mtu].push_back(patient.name);
    interface = patient.facts->rails[rail].interface;
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

void add_unequal_rails(const Examination& examination, std::vector<Finding>& findings) {
  std::set<std::size_t> counts;
  std::vector<std::string> parts;
  for (const Patient& patient : examination.patients) {
    if (!patient.facts || patient.facts->rails.empty()) continue;
    counts.insert(patient.facts->rails.size());
    parts.push_back(fmt::format("{} on {}", patient.facts->rails.size(), patient.name));
  }
  if (counts.size() < 2) return;
  findings.push_back({false,
                      fmt::format("the hosts have different numbers of usable interfaces: {}; a "
                                  "pair of hosts uses as many as both have",
                                  fmt::join(parts, ", ")),
                      "name the same ones on all hosts with --interface"});
}

}  // namespace

std::vector<Finding> diagnose_names(const Examination& examination) {
  std::vector<Finding> findings;
  for (std::size_t host = 0; host < examination.patients.size(); ++host) {
    const NameTrouble trouble = trouble_with(examination, host);
    const std::string& name = examination.patients[host].name;
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

std::vector<Finding> diagnose_limits(const Examination& examination) {
  std::vector<Finding> findings;
  const double buffer = needed_buffer(examination);
  const auto connections =
      static_cast<int>(most_rails(examination)) * std::max(examination.ranks, 1);
  const int files = std::max(kFewFiles, 64 + 2 * connections);
  for (const Patient& patient : examination.patients) {
    if (!patient.facts) continue;
    const HostFacts& facts = *patient.facts;
    if (facts.most_files < files) {
      findings.push_back(
          {true,
           fmt::format("{}: a process may open at most {} files and sockets (ulimit -Hn); a rank "
                       "may need {}",
                       patient.name, facts.most_files, files),
           fmt::format("on {}: add \"* hard nofile 65536\" to /etc/security/limits.conf, or "
                       "LimitNOFILE=65536 for the service that starts the ranks; then log in again",
                       patient.name)});
    }
    if (facts.most_received < buffer) {
      findings.push_back(
          small_buffer(patient.name, "net.ipv4.tcp_rmem", facts.most_received, buffer));
    }
    if (facts.most_sent < buffer) {
      findings.push_back(small_buffer(patient.name, "net.ipv4.tcp_wmem", facts.most_sent, buffer));
    }
  }
  add_small_requests(examination, findings);
  return findings;
}

std::vector<Finding> diagnose_interfaces(const Examination& examination) {
  std::vector<Finding> findings;
  for (const Patient& patient : examination.patients) {
    if (!patient.facts) continue;
    add_rail_findings(patient, count_hosts(examination), findings);
    if (!patient.facts->rails.empty()) add_faster_interfaces(patient, findings);
  }
  add_shared_addresses(examination, findings);
  for (std::size_t rail = 0; rail < most_rails(examination); ++rail) {
    add_unequal_mtus(examination, rail, findings);
  }
  add_unequal_rails(examination, findings);
  return findings;
}

}  // namespace gradwire
