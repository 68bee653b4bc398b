#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::federated {

class ModularVector;

/// Counts and sums that a client uploads beside its update. They are added as updates are, so that
/// the server learns those of all clients together, also under secure aggregation.
struct Metrics {
  std::int64_t clients = 0;
  std::int64_t steps = 0;     ///< Local training's.
  double weighted_steps = 0;  ///< Steps times the weight of the update.
  std::int64_t clipped = 0;   ///< Elements of the update beyond the range.
  /// The update's elements', in units of the squared range; the sum over the clients.
  double mean_square = 0;
  std::int64_t evaluated = 0;  ///< Held-out samples.
  std::int64_t correct = 0;    ///< Those classified correctly.
  double loss = 0;             ///< Sum over these.
  double training_loss = 0;    ///< Mean over the local steps; the sum over the clients.

  static constexpr std::size_t kElements = 10;

  double accuracy() const {
    return evaluated > 0 ? static_cast<double>(correct) / static_cast<double>(evaluated) : 0;
  }
};

/// Integers modulo 2^64: real numbers in fixed point, which saturate at the ends of their range.
ModularVector to_integers(const Metrics& metrics);
/// Inverse of to_integers(), also of a sum.
Metrics metrics_of(const ModularVector& integers);

}  // namespace gradwire::federated
