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

/// How buckets are averaged. All of it must be the same on every rank.
struct AveragerOptions {
  /// "none": as they are; or a codec of codec/catalogue.h ("int8", "top_k:0.01"), "power_sgd:RANK",
  /// "auto:CODEC" (that one where it makes steps shorter, none elsewhere) or "auto" (of int8).
  std::string codec = "none";
  /// Steps until the codec applies in full (warm-up: Lin et al., ICLR 2018, 3.3): a fraction such
  /// as top_k's comes down to its value exponentially, other codecs do not apply before.
  int warmup_steps = 0;
  std::uint64_t seed = 1;
  /// Of one step's operations; nothing: the communicator's.
  std::optional<Duration> timeout;
  /// Where `auto` has the time from; null: the machine's clock.
  std::shared_ptr<const Clock> clock;
  /// Values that are coded at once: while one such piece is coded, others travel.
  std::size_t piece_elements = std::size_t{1} << 20;
  /// Rank r alone is to have the mean of part r of as many equal parts as there are ranks, in its
  /// place: half the way. What else the bucket then holds is of no use. For codecs of single values
  /// (and none), without `auto`.
  bool to_owners = false;
  /// `auto` measures so many steps each way, and again after so many steps.
  int trial_steps = 3;
  int steps_between_trials = 1000;
};

/// The averager for these buckets, whose `start(i, ...)` is about `buckets[i]`. It reserves lanes
/// of the communicator: ranks that make several make them in the same order. A communicator of one
/// rank leaves the gradients alone, whatever the codec. Throws Exception(invalid_argument): unknown
/// codec (lists them), a bucket that is not float32 and not `exact` (names the tensor).
std::unique_ptr<Averager> make_averager(std::shared_ptr<Communicator> communicator,
                                        std::vector<BucketShape> buckets,
                                        const AveragerOptions& options = {});

}  // namespace gradwire
