#include "gradwire/cli/probe/roster.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/json_fields.h"
#include "gradwire/topology/machine.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

RosterEntry entry_from(JsonFields fields) {
  RosterEntry entry;
  entry.host = fields.text("host");
  entry.machine = fields.text("machine");
  entry.kernel = fields.text("kernel");
  entry.cores = fields.integer("cores", 0, 1 << 20);
  entry.token = fields.text("token");
  for (JsonFields& rail : fields.objects("rails", 0)) {
    entry.rails.push_back(
        {.interface = rail.text("interface"), .mtu = rail.integer("mtu", 68, 1 << 20)});
    entry.echoes.push_back(value_or_throw(SocketAddress::parse(rail.text("echo"))));
  }
  fields.refuse_others();
  return entry;
}

template <class T>
int place_of(std::vector<T>& known, const T& value) {
  const auto found = std::ranges::find(known, value);
  const int place = static_cast<int>(found - known.begin());
  if (found == known.end()) known.push_back(value);
  return place;
}

}  // namespace

std::string to_json(const RosterEntry& entry) {
  Json rails = Json::array();
  for (std::size_t i = 0; i < entry.rails.size(); ++i) {
    rails.push_back({{"interface", entry.rails[i].interface},
                     {"mtu", entry.rails[i].mtu},
                     {"echo", entry.echoes[i].to_string()}});
  }
  const Json json{{"host", entry.host},   {"machine", entry.machine}, {"kernel", entry.kernel},
                  {"cores", entry.cores}, {"token", entry.token},     {"rails", std::move(rails)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Machines::Machines(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const std::string& name : names) {
    const int number = place_of(known, name);
    ranks_on_.resize(known.size());
    ranks_on_[static_cast<std::size_t>(number)].push_back(static_cast<Rank>(number_of_.size()));
    number_of_.push_back(number);
  }
}

Result<Roster> Roster::of(const std::vector<std::string>& entries) {
  Roster roster;
  std::vector<std::string> names;
  for (const std::string& text : entries) {
    auto entry = read_json_fields(text, "entry of a rank", entry_from);
    if (!entry) return tl::unexpected<Error>(entry.error());
    names.push_back(entry->machine);
    roster.entries_.push_back(std::move(*entry));
  }
  roster.machines_ = Machines(names);
  return roster;
}

std::vector<int> Roster::kernels() const {
  std::vector<std::string> names;
  std::vector<int> kernels;
  for (int host = 0; host < count(); ++host) {
    kernels.push_back(place_of(names, entry(leader(host)).kernel));
  }
  return kernels;
}

std::vector<MeasuredHost> Roster::hosts() const {
  std::vector<std::string> names;
  for (int host = 0; host < count(); ++host) names.push_back(entry(leader(host)).host);
  names = distinct_names(names);
  const std::vector<int> numbers = kernels();
  std::vector<MeasuredHost> hosts;
  for (int host = 0; host < count(); ++host) {
    const RosterEntry& first = entry(leader(host));
    const int kernel = numbers[static_cast<std::size_t>(host)];
    const bool shared = std::ranges::count(numbers, kernel) > 1;
    hosts.push_back({.name = names[static_cast<std::size_t>(host)],
                     .ranks = static_cast<int>(ranks_on(host).size()),
                     .cores = first.cores,
                     .kernel = shared ? kernel : -1,
                     .rails = first.rails});
  }
  return hosts;
}

}  // namespace gradwire
