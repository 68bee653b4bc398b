#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/federated/modular_vector.h"
#include "gradwire/federated/quantizer_options.h"

namespace gradwire::federated {

/// Throws Exception(invalid_argument) for values out of range.
void check(const QuantizerOptions& options);

/// Turns the updates of one round into vectors of integers, and their weighted sum into the mean
/// update:
///
///   rotate blocks of at most 1,024 elements, spread over the tensors (the same signs for all)
///   -> keep the elements of the round's mask
///   -> clip to [-range, range]
///   -> round to one of 2^bits - 1 evenly spaced levels, up or down at random, so that the mean of
///      the result is the element; 0 stays 0
///   -> multiply by the weight, modulo 2^m
///
/// The mean update is an unbiased estimate of the weighted mean, but for clipping. Rotated elements
/// have nearly the same spread, which makes a small range sufficient (Suresh et al., "Distributed
/// mean estimation with limited communication", ICML 2017, section 3). Thread-safe.
class UpdateQuantizer {
 public:
  /// For updates of `size` elements. `round_seed` decides signs and mask.
  UpdateQuantizer(const QuantizerOptions& options, std::size_t size, double range,
                  std::uint64_t round_seed);

  /// Number of integers that are sent.
  std::size_t elements() const;
  double range() const { return range_; }
  const QuantizerOptions& options() const { return options_; }
  std::uint64_t round_seed() const { return seed_; }

  struct Encoded {
    ModularVector integers;
    std::int64_t clipped = 0;  ///< Elements that were beyond the range.
    double mean_square = 0;    ///< The elements' that are sent, before clipping.
  };
  /// `update`: the difference from the global model, of finite elements. `sum_bits`: the bits of
  /// the round's sum. `client_seed` decides the rounding.
  Encoded encode(std::span<const float> update, std::int64_t weight, int sum_bits,
                 std::uint64_t client_seed) const;

  /// The mean update of the clients whose integers were added; `weight` is the sum of their
  /// weights.
  std::vector<float> mean(const ModularVector& sum, std::int64_t weight) const;

 private:
  std::vector<float> rotated(std::span<const float> update) const;
  void rotate_back(std::span<const float> rotated, std::span<float> update) const;

  QuantizerOptions options_;
  std::size_t size_;
  double range_;
  double unit_;  ///< Distance of two levels.
  std::uint64_t seed_;
  std::vector<std::uint32_t> kept_;  ///< The mask's elements; empty if all are sent.
};

/// The range of the next round, given the mean square of the elements that were sent in this one:
/// so many standard deviations that rotated elements, which are nearly Gaussian, are clipped once
/// in two million. Elements that are not rotated have a larger range.
double next_range(const QuantizerOptions& options, double mean_square);

/// Settings of the first round, in which no range is known: at least 24 bits, up to magnitude 1.
QuantizerOptions first_round(QuantizerOptions options);

}  // namespace gradwire::federated
