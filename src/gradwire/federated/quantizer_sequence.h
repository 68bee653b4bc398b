#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/base/random.h"
#include "gradwire/federated/metrics.h"
#include "gradwire/federated/update_quantizer.h"

namespace gradwire::federated {

/// The seeds that follow from a run's, so that a simulation and a server draw the same.
struct RunSeeds {
  std::uint64_t updates = 0;   ///< Signs, masks and rounding.
  std::uint64_t devices = 0;   ///< Simulated devices.
  std::uint64_t training = 0;  ///< Order of samples.

  static RunSeeds of(std::uint64_t seed) {
    return {mixed_seed({seed, 1}), mixed_seed({seed, 2}), mixed_seed({seed, 3})};
  }
};

/// The quantizers of a run's rounds. Unless the range is given, each has that of the last round's
/// updates, and the first round has at least 24 bits, up to magnitude 1. Updates of zeros leave the
/// range as it is.
class QuantizerSequence {
 public:
  /// For updates of `size` elements. `seed`: RunSeeds::updates.
  QuantizerSequence(const QuantizerOptions& options, std::size_t size, std::uint64_t seed)
      : options_(options), size_(size), seed_(seed) {}

  /// RoundPolicy::update_bits of the next round.
  int bits() const { return of_next().bits; }
  UpdateQuantizer quantizer(std::int64_t round) const {
    return {of_next(), size_, range(), mixed_seed({seed_, static_cast<std::uint64_t>(round)})};
  }

  /// Takes the sum of a committed round's metrics.
  void add(const Metrics& sum) {
    if (sum.clients == 0 || !(sum.mean_square > 0)) return;
    mean_square_ = sum.mean_square / static_cast<double>(sum.clients) * range() * range();
  }

  /// All that a checkpoint needs: the mean square of the last elements that were not all zero;
  /// 0: there were none.
  double mean_square() const { return mean_square_; }
  void resume(double mean_square) { mean_square_ = mean_square; }

 private:
  static constexpr double kFirstRange = 1;
  double range() const {
    const bool is_known = options_.clip > 0 || mean_square_ > 0;
    return is_known ? next_range(options_, mean_square_) : kFirstRange;
  }
  QuantizerOptions of_next() const { return mean_square_ == 0 ? first_round(options_) : options_; }

  QuantizerOptions options_;
  std::size_t size_;
  std::uint64_t seed_;
  double mean_square_ = 0;
};

}  // namespace gradwire::federated
