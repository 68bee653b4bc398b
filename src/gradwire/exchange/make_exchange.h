#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/exchange/exchange.h"
#include "gradwire/trace/trace.h"

namespace gradwire {
class Communicator;
}

namespace gradwire::exchange {

/// How units are reduced. All options must be the same on every rank.
struct ExchangeOptions {
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
  /// True if gradients are reduce-scattered, false if they are all-reduced: with a codec, an
  /// exchange is for one of them. Sharding requires an element-wise codec or none, without `auto`.
  bool sharded = false;
  /// Steps may be abandoned (Exchange::end_step()): keeps a copy of the state of the last committed
  /// step, as large as all residuals.
  bool can_abandon = false;
  /// `auto` measures `trial_steps` steps each way, and repeats that every `steps_between_trials`
  /// steps.
  int trial_steps = 3;
  int steps_between_trials = 1000;
};

/// Creates the exchange for these units: uncompressed, or with a codec around that. It reserves
/// lanes of the communicator: ranks that make several exchanges must make them in the same order. A
/// communicator of one rank leaves gradients unchanged, whatever the codec. `trace` records
/// operations and waits; may be null, and must outlive all operations. Throws
/// Exception(invalid_argument) for an unknown codec (lists the known ones), and for a unit that is
/// not float32 and lacks skip_compression (names the tensor).
std::unique_ptr<Exchange> make_exchange(std::shared_ptr<Communicator> communicator,
                                        std::vector<UnitShape> units,
                                        const ExchangeOptions& options = {},
                                        TraceRecorder* trace = nullptr);

}  // namespace gradwire::exchange
