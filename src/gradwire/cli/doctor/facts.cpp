#include "gradwire/cli/doctor/facts.h"

#include <algorithm>
#include <climits>
#include <utility>

#include <nlohmann/json.hpp>

#include "gradwire/base/json_fields.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLastOutcome = static_cast<int>(ReachFacts::Outcome::stranger);

/// Serializes; invalid UTF-8 is replaced.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const RailFacts& rail) {
  return {{"interface", rail.interface}, {"address", rail.address}, {"endpoint", rail.endpoint},
          {"echo", rail.echo},           {"mtu", rail.mtu},         {"megabits", rail.megabits},
          {"loopback", rail.loopback}};
}

Json json_of(const NameFacts& name) {
  return {{"name", name.name}, {"addresses", name.addresses}, {"error", name.error}};
}

template <class T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

RailFacts rail_from(JsonFields fields) {
  RailFacts rail;
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

NameFacts name_from(JsonFields fields) {
  NameFacts name;
  name.name = fields.text("name");
  name.addresses = fields.texts("addresses");
  name.error = fields.text("error");
  fields.refuse_others();
  return name;
}

HostFacts host_from(JsonFields fields) {
  HostFacts facts;
  facts.host = fields.text("host");
  facts.version = fields.text("version");
  facts.build = fields.text("build");
  facts.protocol = fields.integer("protocol", 0, INT_MAX);
  facts.torch = fields.text("torch");
  facts.torch_problem = fields.text("torch_problem");
  facts.python = fields.text("python");
  facts.system = fields.text("system");
  facts.most_files = fields.integer("most_files", 0, INT_MAX);
  facts.most_received = fields.integer("most_received", 0, INT_MAX);
  facts.most_sent = fields.integer("most_sent", 0, INT_MAX);
  facts.most_asked_for = fields.integer("most_asked_for", 0, INT_MAX);
  facts.interfaces = fields.text("interfaces");
  for (JsonFields& name : fields.objects("names", 0)) facts.names.push_back(name_from(name));
  for (JsonFields& rail : fields.objects("rails", 0)) facts.rails.push_back(rail_from(rail));
  facts.problems = fields.texts("problems");
  facts.port_problems = fields.texts("port_problems");
  facts.master = fields.text("master");
  facts.master_problem = fields.text("master_problem");
  facts.faster = fields.texts("faster");
  facts.token = fields.text("token");
  fields.refuse_others();
  return facts;
}

ReachFacts reach_from(JsonFields fields) {
  ReachFacts reach;
  reach.to = fields.integer("to", 0, kMaxRanks);
  reach.rail = fields.integer("rail", kMasterDoor, INT_MAX);
  reach.outcome = static_cast<ReachFacts::Outcome>(fields.integer("outcome", 0, kLastOutcome));
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

std::string to_json(const HostFacts& facts) {
  return text_of({{"host", facts.host},
                  {"version", facts.version},
                  {"build", facts.build},
                  {"protocol", facts.protocol},
                  {"torch", facts.torch},
                  {"torch_problem", facts.torch_problem},
                  {"python", facts.python},
                  {"system", facts.system},
                  {"most_files", facts.most_files},
                  {"most_received", facts.most_received},
                  {"most_sent", facts.most_sent},
                  {"most_asked_for", facts.most_asked_for},
                  {"interfaces", facts.interfaces},
                  {"names", list_of(facts.names)},
                  {"rails", list_of(facts.rails)},
                  {"problems", facts.problems},
                  {"port_problems", facts.port_problems},
                  {"master", facts.master},
                  {"master_problem", facts.master_problem},
                  {"faster", facts.faster},
                  {"token", facts.token}});
}

std::string to_json(const std::vector<ReachFacts>& facts) {
  Json list = Json::array();
  for (const ReachFacts& one : facts) {
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

Result<HostFacts> parse_host_facts(const std::string& text) {
  return read_json_fields(text, "report of a host", host_from);
}

Result<std::vector<ReachFacts>> parse_reach_facts(const std::string& text) {
  return read_json_fields(text, "report of a host", [](JsonFields fields) {
    std::vector<ReachFacts> all;
    for (JsonFields& one : fields.objects("reach", 0)) all.push_back(reach_from(one));
    return all;
  });
}

std::size_t most_rails(const Examination& examination) {
  std::size_t most = 0;
  for (const Patient& patient : examination.patients) {
    if (patient.facts) most = std::max(most, patient.facts->rails.size());
  }
  return most;
}

}  // namespace gradwire
