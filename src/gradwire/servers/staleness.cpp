#include "gradwire/servers/staleness.h"

#include <cmath>

namespace gradwire::servers {

void Staleness::add(std::int64_t staleness, std::int64_t count) {
  counts_[staleness] += count;
  count_ += count;
}

void Staleness::add(const Staleness& other) {
  for (const auto& [staleness, count] : other.counts_) add(staleness, count);
}

double Staleness::mean() const {
  if (count_ == 0) return 0;
  double sum = 0;
  for (const auto& [staleness, count] : counts_) {
    sum += static_cast<double>(staleness) * static_cast<double>(count);
  }
  return sum / static_cast<double>(count_);
}

std::int64_t Staleness::quantile(double share) const {
  const auto rank = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_)));
  std::int64_t below = 0;
  for (const auto& [staleness, count] : counts_) {
    below += count;
    if (below >= rank) return staleness;
  }
  return 0;
}

}  // namespace gradwire::servers
