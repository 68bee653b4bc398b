#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/gradient/averager.h"

namespace gradwire {

/// How buckets are averaged. All options must be the same on every rank.
struct AveragerOptions {
  /// "none": uncompressed; a codec of codec/catalogue.h ("int8", "top_k:0.01"); "power_sgd:RANK";
  /// "auto:CODEC" (that codec if it makes steps shorter, none otherwise); or "auto" (for int8).
  std::string codec = "none";
  /// Steps until the codec applies in full (warm-up: Lin et al., ICLR 2018, 3.3). A fraction such
  /// as top_k's decreases exponentially to its value; other codecs are off until then.
  int warmup_steps = 0;
  std::uint64_t seed = 1;
  /// For the operations of one step; if empty, the communicator's.
  std::optional<Duration> timeout;
  /// Time source of `auto`; null: the machine's clock.
  std::shared_ptr<const Clock> clock;
  /// Elements that are coded at once. While one such piece is coded, others are sent.
  std::size_t piece_elements = std::size_t{1} << 20;
  /// If true, only rank r gets the mean of part r of P equal parts, in place (a reduce-scatter).
  /// The rest of the bucket is then undefined. For element-wise codecs and none, without `auto`.
  bool reduce_scatter_only = false;
  /// `auto` measures `trial_steps` steps each way, and repeats that every `steps_between_trials`
  /// steps.
  int trial_steps = 3;
  int steps_between_trials = 1000;
};

/// Creates the averager for these buckets; `start(i, ...)` averages `buckets[i]`. It reserves lanes
/// of the communicator: ranks that make several averagers must make them in the same order. A
/// communicator of one rank leaves the gradients unchanged, whatever the codec. Throws
/// Exception(invalid_argument) for an unknown codec (lists the known ones), and for a bucket that
/// is not float32 and lacks skip_compression (names the tensor).
std::unique_ptr<Averager> make_averager(std::shared_ptr<Communicator> communicator,
                                        std::vector<BucketShape> buckets,
                                        const AveragerOptions& options = {});

}  // namespace gradwire
