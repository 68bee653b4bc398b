#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// What happens to the samples at the end of an epoch that do not fill a batch on every rank.
enum class UnevenBatch : std::uint8_t {
  drop,  ///< They are left out of this epoch.
  pad,   ///< The batch is filled up with samples from the epoch's start.
};

/// One rank's part of a batch.
struct SampledBatch {
  std::vector<std::int64_t> samples;
  /// The first so many are this epoch's own, the rest padding; less than all only in the last
  /// batch, and then perhaps none.
  std::int64_t own = 0;
};

struct SamplerOptions {
  std::int64_t samples = 0;     ///< Samples in the data set.
  std::int64_t batch_size = 1;  ///< Samples a rank gets at a time.
  Rank rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  UnevenBatch uneven = UnevenBatch::drop;
};

/// Deals a data set out to ranks. In each epoch, over all ranks, every sample is `own` of exactly
/// one batch (with `drop`: of at most one, less than a batch for each rank left out). All ranks get
/// equally many batches, of equal size. Step s of P ranks with batches of B takes the same samples
/// as step s of one rank with a batch of P * B. A pure function of its options, epoch and step.
class Sampler {
 public:
  /// Throws Exception(invalid_argument) if an option is out of its range, or if there is not one
  /// batch for each rank and the rest is to be dropped.
  explicit Sampler(const SamplerOptions& options);

  /// Shuffles anew, from seed and epoch.
  void start_epoch(std::int64_t epoch);

  /// Batches in an epoch, for each rank.
  std::int64_t batches() const { return batches_; }

  /// Batch number `step`, 0 .. batches() - 1, of the epoch.
  SampledBatch batch(std::int64_t step) const;

  const SamplerOptions& options() const { return options_; }

 private:
  SamplerOptions options_;
  std::int64_t batches_ = 0;
  std::vector<std::int64_t> order_;
};

}  // namespace gradwire
