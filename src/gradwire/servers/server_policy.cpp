#include "gradwire/servers/server_policy.h"

#include <algorithm>
#include <cmath>

#include "gradwire/base/refuse.h"

namespace gradwire::servers {
namespace {

/// use * workers is rounded up only if it is above a whole number by more than its rounding error.
constexpr double kRounding = 1e-9;

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
  if (policy.use < 1 && gradients_per_step(policy.use, policy.workers) == policy.workers) {
    // ceil(use * n) < n from n = 1 / (1 - use) on.
    const int enough = static_cast<int>(std::ceil(1 / (1 - policy.use) - kRounding));
    refuse("use {} of {} workers drops no gradient: it takes at least {} workers", policy.use,
           policy.workers, enough);
  }
  if (policy.staleness < 0) refuse("staleness is {}; it must not be negative", policy.staleness);
  if (policy.rate.kind == RateRule::Kind::power && !(policy.rate.exponent > 0)) {
    refuse("the exponent of the rate is {}; it must be positive", policy.rate.exponent);
  }
}

}  // namespace gradwire::servers
