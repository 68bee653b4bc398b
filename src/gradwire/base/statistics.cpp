#include "gradwire/base/statistics.h"

#include <algorithm>

namespace gradwire {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double textbook_all_reduce_bytes(int ranks, double gradient_bytes) {
  return 2.0 * (ranks - 1) * gradient_bytes / ranks;
}

double scaling_efficiency(double compute_seconds, double communication_seconds) {
  const double step = compute_seconds + communication_seconds;
  return step > 0 ? compute_seconds / step : 1;
}

}  // namespace gradwire
