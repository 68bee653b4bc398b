#include "gradwire/cli/doctor/agent.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gradwire/bootstrap/connect.h"
#include "gradwire/cli/probe/measure.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire::cli {
namespace {

constexpr Duration kHostInfoTimeout = std::chrono::seconds(30);
constexpr Duration kConnectTimeout = std::chrono::seconds(3);
constexpr Duration kReachTimeout = std::chrono::minutes(3);
constexpr Duration kPollTimeout = std::chrono::milliseconds(1);
constexpr Duration kMeshTimeout = std::chrono::seconds(15);

/// Losses were measured before.
constexpr ProbeOptions kShortProbe{
    .bandwidth_time = std::chrono::milliseconds(200), .loss_questions = 0, .round_trips = 100};

std::string key(const char* topic, int host) {
  return fmt::format("{}/{}", topic, host);
}

Result<std::vector<std::optional<HostInfo>>> gather_host_info(const bootstrap::Job& job,
                                                              bootstrap::Store& store) {
  std::vector<std::optional<HostInfo>> all;
  for (int host = 0; host < job.world_size; ++host) {
    const auto text = store.get(key("facts", host), kHostInfoTimeout);
    if (!text && text.error().kind != ErrorKind::timeout) {
      return tl::unexpected<Error>(text.error());
    }
    const auto info = text ? parse_host_info(*text) : failure(ErrorKind::timeout, "");
    all.push_back(info ? std::optional(*info) : std::nullopt);
  }
  return all;
}

/// Returns true if no finding so far keeps a job from connecting and sending. The result is the
/// same on all hosts.
Result<bool> can_connect(const bootstrap::Job& job, bootstrap::Store& store,
                         const std::vector<std::optional<HostInfo>>& info) {
  const bool all_there = std::ranges::all_of(info, [](const auto& one) {
    return one && one->problems.empty() && one->port_problems.empty() && !one->rails.empty();
  });
  bool well = all_there && job.world_size > 1;
  for (int host = 0; host < job.world_size; ++host) {
    if (!info[static_cast<std::size_t>(host)]) continue;  // It reports nothing.
    const auto text = store.get(key("reach", host), kReachTimeout);
    if (!text && text.error().kind != ErrorKind::timeout) {
      return tl::unexpected<Error>(text.error());
    }
    const auto reach = text ? parse_reachability(*text) : failure(ErrorKind::timeout, "");
    well = well && reach && std::ranges::all_of(*reach, [&](const Reachability& one) {
             const auto mtu = [&](int end) {
               const auto& rails = info[static_cast<std::size_t>(end)]->rails;
               return rails[static_cast<std::size_t>(one.rail)].mtu;
             };
             if (one.rail == kMasterRail) return true;  // The rendezvous is reachable.
             const int min_mtu = std::min({mtu(host), mtu(one.to), topology::kMaxPacketBytes});
             const bool hole = one.largest_packet > 0 && one.largest_packet < min_mtu;
             return one.outcome == Reachability::Outcome::reached && !hole;
           });
  }
  return well;
}

Result<std::string> connect_and_measure(const net::HostNetwork& network, const bootstrap::Job& job,
                                        bootstrap::Store& store) {
  GRADWIRE_ASSIGN_OR_RETURN(
      auto mesh,
      bootstrap::connect(network, job, {.timeout = kMeshTimeout, .scope = "doctor"}, &store));
  GRADWIRE_ASSIGN_OR_RETURN(
      const auto cluster,
      measure_cluster(*mesh.transport, prober_of(job, mesh), network.clock(), kShortProbe));
  return to_json(cluster);
}

}  // namespace

Status examine_host(const net::HostNetwork& network, const bootstrap::Job& job,
                    const std::vector<std::string>& names, const std::string& python,
                    MasterPort port, bootstrap::Store& store) {
  HostInfo mine = read_host_info(names, python);
  const std::vector<bootstrap::RailEndpoint> rails = find_rails(job, mine.problems);
  mine.faster = faster_interfaces(rails);
  std::vector<std::string> names_of_rails;
  for (const bootstrap::RailEndpoint& rail : rails) names_of_rails.push_back(rail.interface);
  mine.other_cards =
      other_cards(names_of_rails, bootstrap::process_environment(), default_card_of_gloo());
  auto server = std::make_unique<ReachabilityServer>(network, job, rails, port, mine);
  GRADWIRE_RETURN_IF_ERROR(store.set(key("facts", job.rank), to_json(mine)));
  GRADWIRE_ASSIGN_OR_RETURN(const auto others, gather_host_info(job, store));
  const std::string reach = to_json(reach_all(network, job, rails, others, kConnectTimeout));
  GRADWIRE_RETURN_IF_ERROR(store.set(key("reach", job.rank), reach));
  GRADWIRE_ASSIGN_OR_RETURN(const auto well, can_connect(job, store, others));
  server.reset();  // The mesh may need its port.
  std::string last = "";
  if (well) {
    const auto measured = connect_and_measure(network, job, store);
    if (!measured) last = measured.error().message;
    if (measured && job.rank == 0) {
      GRADWIRE_RETURN_IF_ERROR(store.set(key("cluster", 0), *measured));
    }
  }
  return store.set(key("mesh", job.rank), last);
}

ClusterReport collect(bootstrap::Store& store, std::vector<HostReport> reports, Duration patience) {
  ClusterReport found{.reports = std::move(reports), .cluster = {}};
  for (std::size_t i = 0; i < found.reports.size(); ++i) {
    HostReport& report = found.reports[i];
    const int host = static_cast<int>(i);
    // The hosts' reports were waited for before.
    const auto info = store.get(key("facts", host), kPollTimeout);
    if (!info) {
      if (report.failure.empty()) report.failure = info.error().message;
      continue;
    }
    auto parsed = parse_host_info(*info);
    if (!parsed) {
      report.failure = parsed.error().message;
      report.remedy = "install the same gradwire on all hosts";
      continue;
    }
    report.info = std::move(*parsed);
    const auto reach = store.get(key("reach", host), patience);
    const auto mesh = store.get(key("mesh", host), patience);
    if (const auto paths = reach ? parse_reachability(*reach) : failure(ErrorKind::timeout, "")) {
      report.reach = *paths;
    }
    report.mesh_error = mesh ? *mesh : "it stopped early: " + mesh.error().message;
  }
  if (const auto text = store.get(key("cluster", 0), kPollTimeout)) {
    if (auto cluster = topology::parse_cluster(*text)) found.cluster = std::move(*cluster);
  }
  return found;
}

}  // namespace gradwire::cli
