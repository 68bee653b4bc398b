#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// The treatment of samples at the end of an epoch that do not fill a batch on every rank.
enum class UnevenBatch : std::uint8_t {
  drop,  ///< Leave them out of this epoch.
  pad,   ///< Fill the batch with samples from the epoch's start.
};

/// One rank's part of a batch.
struct SampledBatch {
  std::vector<std::int64_t> samples;
  /// The first `own` samples belong to this epoch; the rest is padding. Less than the batch size,
  /// or 0, only in the last batch.
  std::int64_t own = 0;
};

struct SamplerOptions {
  std::int64_t samples = 0;     ///< Number of samples in the data set.
  std::int64_t batch_size = 1;  ///< Samples per rank and step.
  Rank rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  UnevenBatch uneven = UnevenBatch::drop;
};

/// Distributes a data set over ranks. In each epoch, each sample is `own` of exactly one batch over
/// all ranks. With `drop` it is of at most one: less than one batch per rank is left out. All ranks
/// get the same number of batches, of equal size. Step s of P ranks with batches of B takes the
/// same samples as step s of one rank with a batch of P * B. A pure function of options, epoch and
/// step.
class Sampler {
 public:
  /// Throws Exception(invalid_argument) if an option is out of range, or if the samples do not fill
  /// one batch on each rank with `drop`.
  explicit Sampler(const SamplerOptions& options);

  /// Reshuffles, from the seed and `epoch`.
  void start_epoch(std::int64_t epoch);

  /// Batches per epoch on each rank.
  std::int64_t batches() const { return batches_; }

  /// Returns batch number `step`, 0 .. batches() - 1, of the epoch.
  SampledBatch batch(std::int64_t step) const;

  /// Returns the samples at positions `begin`, `begin` + 1, ... of the epoch's order.
  SampledBatch at(std::int64_t begin, std::int64_t count) const;

  const SamplerOptions& options() const { return options_; }

 private:
  SamplerOptions options_;
  std::int64_t batches_ = 0;
  std::vector<std::int64_t> order_;
};

}  // namespace gradwire
