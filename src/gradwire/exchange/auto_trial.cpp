#include "gradwire/exchange/auto_trial.h"

#include <algorithm>

namespace gradwire {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void AutoTrial::add(Duration step) {
  const double seconds = std::chrono::duration<double>(step).count();
  if (taken_ >= 2) (next_is_coded() ? coded_ : plain_).push_back(seconds);
  ++taken_;
}

AutoTrial::Result AutoTrial::result() const {
  return {median(plain_), median(coded_)};
}

}  // namespace gradwire
