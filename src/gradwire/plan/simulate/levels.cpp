#include "gradwire/plan/simulate/levels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

constexpr int kFewHosts = 256;  ///< Up to this many hosts, all are simulated.
constexpr int kWhole = 128;

/// Returns the leading binary digits of `hosts` as a number, as the remainder shapes a tree.
int base_hosts(int hosts) {
  while (hosts >= 2 * kWhole) hosts /= 2;
  return hosts;
}

Fabric with_hosts(Fabric fabric, int hosts) {
  fabric.hosts = hosts;
  return fabric;
}

}  // namespace

bool Levels::apply_to(const std::string& algorithm, const Fabric& fabric) {
  constexpr std::array<std::string_view, 5> deep{"tree", "host_tree", "double_tree", "binomial",
                                                 "bruck"};
  return fabric.hosts > kFewHosts && std::ranges::find(deep, algorithm) != deep.end();
}

Levels::Played::Played(Collective collective, const std::string& algorithm, Fabric of, int hosts)
    : fabric(with_hosts(std::move(of), hosts)),
      ranks(SimulatedRanks::of_all(
          value_or_throw(make_schedule({collective}, algorithm, fabric.topology())), fabric)) {}

Levels::Levels(Collective collective, const std::string& algorithm, const Fabric& fabric)
    : base_(collective, algorithm, fabric, base_hosts(fabric.hosts)),
      half_(collective, algorithm, fabric, kWhole / 2),
      whole_(collective, algorithm, fabric, kWhole),
      doublings_(std::log2(static_cast<double>(fabric.hosts) / base_.fabric.hosts)) {}

double Levels::seconds(double bytes, const CostOptions& options) const {
  const double whole = whole_.seconds(bytes, options);
  const double level = whole - half_.seconds(bytes, options);
  const bool is_whole = base_.fabric.hosts == kWhole;
  return (is_whole ? whole : base_.seconds(bytes, options)) + doublings_ * level;
}

}  // namespace gradwire
