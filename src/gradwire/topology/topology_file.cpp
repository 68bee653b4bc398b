#include "gradwire/topology/topology_file.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/json_fields.h"

namespace gradwire::topology {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMaxRate = 1e13;         // 80 Tb/s.
constexpr double kMaxMicroseconds = 6e7;  // A minute.
constexpr double kMaxOffset = 9e15;       // 285 years, in nanoseconds just below 2^63.
constexpr int kMaxPacket = 1 << 20;
constexpr double kMaxBytes = 1e15;

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

Duration from_microseconds(double us) {
  return Duration(std::llround(us * 1e3));
}

Json json_of(const MeasuredHost& host) {
  Json rails = Json::array();
  for (const MeasuredRail& rail : host.rails) {
    rails.push_back({{"interface", rail.interface},
                     {"mtu", rail.mtu},
                     {"bytes_per_second", rail.bytes_per_second},
                     {"latency_us", microseconds(rail.latency)}});
  }
  Json json{{"name", host.name}, {"ranks", host.ranks}, {"cores", host.cores}, {"rails", rails}};
  if (host.kernel >= 0) json["kernel"] = host.kernel;
  if (host.inside) {
    json["inside"] = {{"bytes_per_second", host.inside->bytes_per_second},
                      {"latency_us", microseconds(host.inside->latency)}};
  }
  json["together_bytes_per_second"] = host.together_bytes_per_second;
  json["clock_offset_us"] = microseconds(host.clock_offset);
  json["clock_uncertainty_us"] = microseconds(host.clock_uncertainty);
  return json;
}

Json json_of(const MeasuredPath& path) {
  return {{"from", path.from},
          {"to", path.to},
          {"rail", path.rail},
          {"bytes_per_second", path.bytes_per_second},
          {"latency_us", microseconds(path.latency)},
          {"shortest_latency_us", microseconds(path.shortest_latency)},
          {"largest_packet", path.largest_packet},
          {"loss", path.loss}};
}

Json json_of(const MeasuredChoice& choice) {
  Json json{{"collective", choice.collective},
            {"ranks", choice.ranks},
            {"bytes", choice.bytes},
            {"algorithm", choice.algorithm},
            {"time_us", microseconds(choice.time)}};
  if (choice.segments > 0) json["segments"] = choice.segments;
  return json;
}

double rate_of(JsonFields& fields, std::string_view key = "bytes_per_second") {
  return fields.number(key, 0, kMaxRate);
}

Duration time_of(JsonFields& fields, std::string_view key, double min = 0) {
  return from_microseconds(fields.number(key, min, min < 0 ? kMaxOffset : kMaxMicroseconds));
}

MeasuredRail rail_from(JsonFields fields) {
  MeasuredRail rail;
  rail.interface = fields.text("interface");
  rail.mtu = fields.integer("mtu", 68, kMaxPacket);
  rail.bytes_per_second = rate_of(fields);
  rail.latency = time_of(fields, "latency_us");
  fields.refuse_others();
  return rail;
}

Link link_from(JsonFields fields) {
  Link link;
  link.bytes_per_second = fields.number("bytes_per_second", 1, kMaxRate);
  link.latency = time_of(fields, "latency_us");
  fields.refuse_others();
  return link;
}

MeasuredHost host_from(JsonFields fields) {
  MeasuredHost host;
  host.name = fields.text("name");
  host.ranks = fields.integer("ranks", 1, kMaxRanks);
  host.cores = fields.integer("cores", 0, 1 << 20);
  if (fields.has("kernel")) host.kernel = fields.integer("kernel", 0, kMaxRanks);
  for (JsonFields& rail : fields.objects("rails", 1)) host.rails.push_back(rail_from(rail));
  if (fields.has("inside")) host.inside = link_from(fields.object("inside"));
  host.together_bytes_per_second = rate_of(fields, "together_bytes_per_second");
  host.clock_offset = time_of(fields, "clock_offset_us", -kMaxOffset);
  host.clock_uncertainty = time_of(fields, "clock_uncertainty_us", -kMaxOffset);
  fields.refuse_others();
  return host;
}

MeasuredPath path_from(JsonFields fields, const std::vector<MeasuredHost>& hosts) {
  const int last = static_cast<int>(hosts.size()) - 1;
  MeasuredPath path;
  path.from = fields.integer("from", 0, last);
  path.to = fields.integer("to", 0, last);
  if (path.from == path.to) fields.refuse("to", "a host other than \"from\"");
  const auto rails = [&](int host) { return hosts[static_cast<std::size_t>(host)].rails.size(); };
  const auto both = static_cast<int>(std::min(rails(path.from), rails(path.to)));
  path.rail = fields.integer("rail", 0, both - 1);
  path.bytes_per_second = rate_of(fields);
  path.latency = time_of(fields, "latency_us");
  path.shortest_latency = time_of(fields, "shortest_latency_us");
  path.largest_packet = fields.integer("largest_packet", 0, kMaxPacket);
  path.loss = fields.number("loss", 0, 1);
  fields.refuse_others();
  return path;
}

MeasuredChoice choice_from(JsonFields fields) {
  MeasuredChoice choice;
  choice.collective = fields.text("collective");
  choice.ranks = fields.integer("ranks", 1, kMaxRanks);
  choice.bytes = static_cast<std::size_t>(fields.number("bytes", 0, kMaxBytes));
  choice.algorithm = fields.text("algorithm");
  choice.time = time_of(fields, "time_us");
  if (fields.has("segments")) choice.segments = fields.integer("segments", 1, kMaxSegments);
  fields.refuse_others();
  return choice;
}

Cluster cluster_from(JsonFields fields) {
  Cluster cluster;
  fields.require_version(kTopologyVersion);
  std::set<std::string> names;
  for (JsonFields& host : fields.objects("hosts", 1)) {
    cluster.hosts.push_back(host_from(host));
    if (!names.insert(cluster.hosts.back().name).second) {
      host.refuse("name", "a name that no other host has");
    }
  }
  std::set<std::tuple<int, int, int>> seen;
  for (JsonFields& entry : fields.objects("paths", 0)) {
    const MeasuredPath path = path_from(entry, cluster.hosts);
    if (!seen.insert({path.from, path.to, path.rail}).second) {
      entry.refuse("from", "the start of a path that the file has only once");
    }
    cluster.paths.push_back(path);
  }
  if (fields.has("choices")) {
    for (JsonFields& choice : fields.objects("choices", 0)) {
      cluster.choices.push_back(choice_from(choice));
    }
  }
  fields.refuse_others();
  return cluster;
}

}  // namespace

std::string to_json(const Cluster& cluster) {
  Json json{{"version", kTopologyVersion}, {"hosts", Json::array()}, {"paths", Json::array()}};
  for (const MeasuredHost& host : cluster.hosts) json["hosts"].push_back(json_of(host));
  for (const MeasuredPath& path : cluster.paths) json["paths"].push_back(json_of(path));
  if (!cluster.choices.empty()) json["choices"] = Json::array();
  for (const MeasuredChoice& choice : cluster.choices) json["choices"].push_back(json_of(choice));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Cluster> parse_cluster(std::string_view text) {
  return read_json_fields(text, "topology", cluster_from);
}

Result<Cluster> read_cluster(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text) {
    return failure(ErrorKind::system,
                   text.error().message + "; gradwire probe --hosts ... writes such a file");
  }
  Result<Cluster> cluster = parse_cluster(*text);
  if (!cluster) return failure(cluster.error().kind, path + ": " + cluster.error().message);
  return cluster;
}

void write_cluster(const Cluster& cluster, const std::string& path) {
  write_file(path, to_json(cluster));
}

}  // namespace gradwire::topology
