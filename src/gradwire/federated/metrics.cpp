#include "gradwire/federated/metrics.h"

#include <algorithm>
#include <cmath>

#include "gradwire/base/check.h"
#include "gradwire/federated/modular_vector.h"

namespace gradwire::federated {
namespace {

/// Largest real number of one client, so that the sum of a million fits.
constexpr double kLargest = 0x1p43;
constexpr double kFine = 0x1p20, kFinest = 0x1p56;  ///< Units in 1.
constexpr double kLargestOfFinest = kLargest / kFinest;

std::uint64_t fixed(double value, double unit) {
  if (!std::isfinite(value)) value = kLargest;
  const double scaled = std::clamp(value * unit, -kLargest, kLargest);
  return static_cast<std::uint64_t>(std::llround(scaled));
}

}  // namespace

ModularVector to_integers(const Metrics& metrics) {
  ModularVector integers(Metrics::kElements, 64);
  std::size_t i = 0;
  const auto put = [&](std::uint64_t value) { integers.set(i++, value); };
  put(static_cast<std::uint64_t>(metrics.clients));
  put(static_cast<std::uint64_t>(metrics.steps));
  put(fixed(metrics.weighted_steps, 1));
  put(static_cast<std::uint64_t>(metrics.clipped));
  // One of two numbers, for a range from 2^-57 to 2^23.
  const bool is_fine = metrics.mean_square < kLargestOfFinest;
  put(is_fine ? fixed(metrics.mean_square, kFinest) : 0);
  put(is_fine ? 0 : fixed(metrics.mean_square, kFine));
  put(static_cast<std::uint64_t>(metrics.evaluated));
  put(static_cast<std::uint64_t>(metrics.correct));
  put(fixed(metrics.loss, kFine));
  put(fixed(metrics.training_loss, kFine));
  GRADWIRE_CHECK(i == Metrics::kElements);
  return integers;
}

Metrics metrics_of(const ModularVector& integers) {
  GRADWIRE_CHECK(integers.size() == Metrics::kElements);
  std::size_t i = 0;
  const auto count = [&] { return integers.signed_at(i++); };
  const auto real = [&](double unit) {
    return static_cast<double>(integers.signed_at(i++)) / unit;
  };
  return {.clients = count(),
          .steps = count(),
          .weighted_steps = real(1),
          .clipped = count(),
          .mean_square = real(kFinest) + real(kFine),
          .evaluated = count(),
          .correct = count(),
          .loss = real(kFine),
          .training_loss = real(kFine)};
}

}  // namespace gradwire::federated
