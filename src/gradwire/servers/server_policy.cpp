#include "gradwire/servers/server_policy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"

namespace gradwire::servers {
namespace {

/// use * workers is rounded up only if it is above a whole number by more than its rounding error.
constexpr double kRounding = 1e-9;

void check_asynchronous_units(const ServerPolicy& policy) {
  if (!policy.has_common_steps()) {
    refuse(
        "units: some are asynchronous beside synchronous ones, and with mode {} and use {} none is "
        "synchronous: leave them out, or choose mode sync with use 1",
        name_of(policy.mode), policy.use);
  }
  if (policy.whole_steps) {
    refuse("units: asynchronous ones are not part of a step of all units together; leave them out");
  }
}

}  // namespace

std::string_view name_of(Mode mode) {
  switch (mode) {
    case Mode::sync:
      return "sync";
    case Mode::ssp:
      return "ssp";
    case Mode::async:
      return "async";
  }
  return "";
}

double RateRule::factor(std::int64_t staleness) const {
  switch (kind) {
    case Kind::none:
      return 1;
    case Kind::inverse:
      return 1 / static_cast<double>(std::max<std::int64_t>(1, staleness));
    case Kind::power:
      return std::pow(1 + static_cast<double>(staleness), -exponent);
  }
  return 1;
}

void set_mode(ServerPolicy& policy, std::string_view text) {
  static constexpr std::string_view kNames[] = {"sync", "ssp", "async"};
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto known = std::ranges::find(kNames, name);
  if (known == std::end(kNames)) refuse(unknown_name("mode", name, kNames));
  policy.mode = static_cast<Mode>(known - std::begin(kNames));
  policy.staleness = 0;
  if (policy.mode != Mode::ssp) {
    if (colon != text.npos) refuse("mode {} has no staleness: omit '{}'", name, text.substr(colon));
    return;
  }
  const std::string_view number = colon == text.npos ? "" : text.substr(colon + 1);
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, policy.staleness);
  if (error != std::errc() || rest != end || policy.staleness < 0) {
    refuse("mode '{}': give the staleness as a whole number, such as ssp:3", text);
  }
}

std::string mode_text(const ServerPolicy& policy) {
  if (policy.mode != Mode::ssp) return std::string(name_of(policy.mode));
  return fmt::format("ssp:{}", policy.staleness);
}

RateRule parse_rate_rule(std::string_view text) {
  static constexpr std::string_view kNames[] = {"none", "inverse", "power"};
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto known = std::ranges::find(kNames, name);
  if (known == std::end(kNames)) refuse(unknown_name("rate", name, kNames));
  RateRule rule{.kind = static_cast<RateRule::Kind>(known - std::begin(kNames))};
  if (colon == text.npos) return rule;
  const std::string_view number = text.substr(colon + 1);
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, rule.exponent);
  if (rule.kind != RateRule::Kind::power || error != std::errc() || rest != end) {
    refuse("rate '{}': expected none, inverse, or power with its exponent, such as power:0.5",
           text);
  }
  return rule;
}

int workers_per_group(const Groups& groups, int workers, Mode mode) {
  constexpr int kMostGroups = 8;
  if (groups.count == 0) return 1;
  if (mode == Mode::sync) {
    refuse("groups: in mode sync all workers are one group; leave it out, or choose ssp or async");
  }
  if (groups.count < 0 || workers % groups.count != 0) {
    refuse("groups: {} of {} workers; their number must divide that of the workers", groups.count,
           workers);
  }
  if (groups.count > kMostGroups && !groups.beyond_8) {
    refuse(
        "groups: {} are asynchronous to each other, and beyond {} accuracy suffers; make fewer and "
        "larger ones, or set groups_beyond_8",
        groups.count, kMostGroups);
  }
  return workers / groups.count;
}

int gradients_per_step(double use, int workers) {
  return std::max(1, static_cast<int>(std::ceil(use * workers - kRounding)));
}

void check(const ServerPolicy& policy) {
  if (policy.workers < 1)
    refuse("servers need at least one worker, and there are {}", policy.workers);
  if (!(policy.use > 0 && policy.use <= 1)) {
    refuse("use is {}; it must be above 0 and at most 1", policy.use);
  }
  if (policy.use < 1 && policy.mode != Mode::sync) {
    refuse("use is {}, and mode {} drops no gradients: omit it, or choose sync", policy.use,
           name_of(policy.mode));
  }
  if (policy.grace < Duration::zero()) refuse("grace is negative; it must be a time, or 0");
  if (policy.grace > Duration::zero() && policy.use == 1) {
    refuse(
        "grace is of steps that do not wait for all gradients: omit it, or choose mode sync with "
        "use below 1");
  }
  if (policy.use < 1 && gradients_per_step(policy.use, policy.workers) == policy.workers) {
    // ceil(use * n) < n from n = 1 / (1 - use) on.
    const int enough = static_cast<int>(std::ceil(1 / (1 - policy.use) - kRounding));
    refuse("use {} of {} workers drops no gradient: it takes at least {} workers", policy.use,
           policy.workers, enough);
  }
  if (policy.whole_steps && !policy.has_common_steps()) {
    refuse(
        "steps of all units together need the gradients of all workers: choose mode sync with use "
        "1, not mode {} with use {}",
        name_of(policy.mode), policy.use);
  }
  if (std::ranges::count(policy.asynchronous, true) > 0) check_asynchronous_units(policy);
  if (policy.staleness < 0) refuse("staleness is {}; it must not be negative", policy.staleness);
  if (policy.rate.kind == RateRule::Kind::power && !(policy.rate.exponent > 0)) {
    refuse("the exponent of the rate is {}; it must be positive", policy.rate.exponent);
  }
}

}  // namespace gradwire::servers
