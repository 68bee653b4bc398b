#include "gradwire/cli/probe/roster.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/json_fields.h"
#include "gradwire/topology/machine.h"

namespace gradwire::cli {
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
    entry.echoes.push_back(value_or_throw(net::SocketAddress::parse(rail.text("echo"))));
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
    GRADWIRE_ASSIGN_OR_RETURN(auto entry, read_json_fields(text, "entry of a rank", entry_from));
    names.push_back(entry.machine);
    roster.entries_.push_back(std::move(entry));
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

std::vector<topology::MeasuredHost> Roster::hosts() const {
  std::vector<std::string> names;
  for (int host = 0; host < count(); ++host) names.push_back(entry(leader(host)).host);
  names = topology::distinct_names(names);
  const std::vector<int> numbers = kernels();
  std::vector<topology::MeasuredHost> hosts;
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

namespace {

/// The circle method: one host stays, the others advance by one place after each round.
std::vector<HostPair> in_circle_order(int hosts) {
  const int places = hosts + hosts % 2;
  std::vector<HostPair> pairs;
  for (int round = 0; round < places - 1; ++round) {
    const auto at = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1);
    };
    for (int i = 0; i < places / 2; ++i) {
      const auto [a, b] = std::minmax({at(i), at(places - 1 - i)});
      if (b < hosts) pairs.emplace_back(a, b);
    }
  }
  return pairs;
}

}  // namespace

std::vector<std::vector<HostPair>> rounds_of_pairs(const std::vector<int>& machines) {
  std::vector<std::vector<HostPair>> rounds;
  std::set<int> busy;
  for (const HostPair& pair : in_circle_order(static_cast<int>(machines.size()))) {
    const int a = machines[static_cast<std::size_t>(pair.first)];
    const int b = machines[static_cast<std::size_t>(pair.second)];
    if (rounds.empty() || busy.contains(a) || busy.contains(b)) {
      rounds.emplace_back();
      busy.clear();
    }
    rounds.back().push_back(pair);
    busy.insert({a, b});
  }
  return rounds;
}

}  // namespace gradwire::cli
