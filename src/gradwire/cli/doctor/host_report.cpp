#include "gradwire/cli/doctor/host_report.h"

#include <algorithm>
#include <climits>
#include <utility>

#include <nlohmann/json.hpp>

#include "gradwire/base/json_fields.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLastOutcome = static_cast<int>(Reachability::Outcome::unauthenticated);

/// Serializes; invalid UTF-8 is replaced.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const RailInfo& rail) {
  return {{"interface", rail.interface}, {"address", rail.address}, {"endpoint", rail.endpoint},
          {"echo", rail.echo},           {"mtu", rail.mtu},         {"megabits", rail.megabits},
          {"loopback", rail.loopback}};
}

Json json_of(const ResolvedName& name) {
  return {{"name", name.name}, {"addresses", name.addresses}, {"error", name.error}};
}

template <class T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

RailInfo rail_from(JsonFields fields) {
  RailInfo rail;
  rail.interface = fields.text("interface");
  rail.address = fields.text("address");
  rail.endpoint = fields.text("endpoint");
  rail.echo = fields.text("echo");
  rail.mtu = fields.integer("mtu", 0, INT_MAX);
  rail.megabits = fields.integer("megabits", 0, INT_MAX);
  rail.loopback = fields.flag("loopback");
  fields.refuse_others();
  return rail;
}

ResolvedName name_from(JsonFields fields) {
  ResolvedName name;
  name.name = fields.text("name");
  name.addresses = fields.texts("addresses");
  name.error = fields.text("error");
  fields.refuse_others();
  return name;
}

HostInfo host_from(JsonFields fields) {
  HostInfo info;
  info.host = fields.text("host");
  info.version = fields.text("version");
  info.build = fields.text("build");
  info.protocol = fields.integer("protocol", 0, INT_MAX);
  info.torch = fields.text("torch");
  info.torch_problem = fields.text("torch_problem");
  info.python = fields.text("python");
  info.system = fields.text("system");
  info.max_files = fields.integer("most_files", 0, INT_MAX);
  info.max_receive_buffer = fields.integer("most_received", 0, INT_MAX);
  info.max_send_buffer = fields.integer("most_sent", 0, INT_MAX);
  info.max_requested_buffer = fields.integer("most_asked_for", 0, INT_MAX);
  info.interfaces = fields.text("interfaces");
  for (JsonFields& name : fields.objects("names", 0)) info.names.push_back(name_from(name));
  for (JsonFields& rail : fields.objects("rails", 0)) info.rails.push_back(rail_from(rail));
  info.problems = fields.texts("problems");
  info.port_problems = fields.texts("port_problems");
  info.master = fields.text("master");
  info.master_problem = fields.text("master_problem");
  info.faster = fields.texts("faster");
  info.token = fields.text("token");
  fields.refuse_others();
  return info;
}

Reachability reach_from(JsonFields fields) {
  Reachability reach;
  reach.to = fields.integer("to", 0, kMaxRanks);
  reach.rail = fields.integer("rail", kMasterRail, INT_MAX);
  reach.outcome = static_cast<Reachability::Outcome>(fields.integer("outcome", 0, kLastOutcome));
  reach.error = fields.text("error");
  reach.has_echo = fields.flag("has_echo");
  reach.largest_packet = fields.integer("largest_packet", 0, INT_MAX);
  reach.datagrams = fields.integer("datagrams", 0, INT_MAX);
  reach.lost = fields.integer("lost", 0, INT_MAX);
  reach.detour = fields.flag("detour");
  fields.refuse_others();
  return reach;
}

}  // namespace

std::string to_json(const HostInfo& info) {
  return text_of({{"host", info.host},
                  {"version", info.version},
                  {"build", info.build},
                  {"protocol", info.protocol},
                  {"torch", info.torch},
                  {"torch_problem", info.torch_problem},
                  {"python", info.python},
                  {"system", info.system},
                  {"most_files", info.max_files},
                  {"most_received", info.max_receive_buffer},
                  {"most_sent", info.max_send_buffer},
                  {"most_asked_for", info.max_requested_buffer},
                  {"interfaces", info.interfaces},
                  {"names", list_of(info.names)},
                  {"rails", list_of(info.rails)},
                  {"problems", info.problems},
                  {"port_problems", info.port_problems},
                  {"master", info.master},
                  {"master_problem", info.master_problem},
                  {"faster", info.faster},
                  {"token", info.token}});
}

std::string to_json(const std::vector<Reachability>& info) {
  Json list = Json::array();
  for (const Reachability& one : info) {
    list.push_back({{"to", one.to},
                    {"rail", one.rail},
                    {"outcome", static_cast<int>(one.outcome)},
                    {"error", one.error},
                    {"has_echo", one.has_echo},
                    {"largest_packet", one.largest_packet},
                    {"datagrams", one.datagrams},
                    {"lost", one.lost},
                    {"detour", one.detour}});
  }
  return text_of({{"reach", std::move(list)}});
}

Result<HostInfo> parse_host_info(const std::string& text) {
  return read_json_fields(text, "report of a host", host_from);
}

Result<std::vector<Reachability>> parse_reachability(const std::string& text) {
  return read_json_fields(text, "report of a host", [](JsonFields fields) {
    std::vector<Reachability> all;
    for (JsonFields& one : fields.objects("reach", 0)) all.push_back(reach_from(one));
    return all;
  });
}

std::size_t max_rails(const ClusterReport& cluster_report) {
  std::size_t most = 0;
  for (const HostReport& report : cluster_report.reports) {
    if (report.info) most = std::max(most, report.info->rails.size());
  }
  return most;
}

}  // namespace gradwire
