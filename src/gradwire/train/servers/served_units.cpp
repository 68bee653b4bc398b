#include "gradwire/train/servers/served_units.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

std::set<std::string> parameters_of_units(const std::vector<NamedTensor>& parameters,
                                          const std::vector<std::string>& units) {
  std::set<std::string> named;
  for (const std::string& unit : units) {
    const auto is_named = [&](const NamedTensor& each) {
      return matches(unit, each.name) || matches(unit + ".*", each.name);
    };
    if (std::ranges::none_of(parameters, is_named)) {
      std::vector<std::string> names;
      for (const NamedTensor& each : parameters) names.push_back(each.name);
      refuse("units: \"{}\" names no parameter; the model has {}", unit, fmt::join(names, ", "));
    }
    for (const NamedTensor& each : parameters) {
      if (is_named(each)) named.insert(each.name);
    }
  }
  return named;
}

std::unique_ptr<Shards> make_served_units(ProcessGroup group, const std::string& who, int parts,
                                          const UnitPlan& plan,
                                          const std::vector<NamedTensor>& parameters) {
  auto units = std::make_unique<Shards>(
      std::move(group), who, ShardsOptions{.stage = 1, .parameters = {}, .servers = parts},
      plan.units.size());
  for (const UnitPlan::Unit& unit : plan.units) {
    std::vector<NamedTensor> members;
    for (const auto index : unit.members) members.push_back(parameters[index]);
    units->add(unit.name, members, unit.root);
  }
  units->allocate_gradients();
  return units;
}

}  // namespace gradwire
