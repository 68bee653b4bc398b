#include "gradwire/federated/fairness.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

namespace gradwire::federated {

double jain_index(std::span<const double> values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 1;
}

double jain_index(std::span<const ClientRecord> clients) {
  std::vector<double> counted;
  for (const ClientRecord& one : clients) counted.push_back(static_cast<double>(one.counted));
  return jain_index(counted);
}

double worst_tenth(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto count = static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, values.size() / 10));
  std::ranges::nth_element(values, values.begin() + count - 1);
  return std::accumulate(values.begin(), values.begin() + count, 0.0) / static_cast<double>(count);
}

std::vector<ClassRecord> by_class(std::span<const ClientRecord> clients,
                                  std::span<const DeviceClass> classes) {
  std::vector<ClassRecord> records(kDeviceClasses);
  double samples = 0, counted = 0;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    ClassRecord& record = records[static_cast<std::size_t>(classes[i])];
    const ClientRecord& one = clients[i];
    ++record.clients;
    samples += static_cast<double>(one.samples);
    counted += static_cast<double>(one.counted);
    record.sample_share += static_cast<double>(one.samples);
    record.counted_share += static_cast<double>(one.counted);
    record.compute_seconds += one.compute_seconds;
    record.up_bytes += one.up_bytes;
    record.down_bytes += one.down_bytes;
  }
  for (ClassRecord& record : records) {
    if (samples > 0) record.sample_share /= samples;
    if (counted > 0) record.counted_share /= counted;
    if (record.clients == 0) continue;
    for (double* mean : {&record.compute_seconds, &record.up_bytes, &record.down_bytes})
      *mean /= record.clients;
  }
  return records;
}

std::vector<DeviceClass> classes_of(std::span<const double> seconds) {
  std::vector<std::size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return seconds[i]; });
  std::vector<DeviceClass> classes(seconds.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    classes[order[i]] = static_cast<DeviceClass>(i * kDeviceClasses / order.size());
  return classes;
}

}  // namespace gradwire::federated
