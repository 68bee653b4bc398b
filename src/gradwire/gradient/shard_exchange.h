#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/comm/communicator.h"
#include "gradwire/gradient/averager.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

/// Converts flat units of a model between replicated (every rank has all of it) and sharded (every
/// rank has its part). ZeRO uses it in place of an all-reduce (Rajbhandari et al., "ZeRO: Memory
/// Optimizations Toward Training Trillion Parameter Models", arXiv:1910.02054, section 7). A unit
/// has P parts of the same size; part r belongs to rank r.
///
/// Every rank starts reductions in the same order, and gathers in the same order; how the two
/// interleave may differ between ranks. Each unit has at most one operation of either kind in
/// flight. Reductions, gathers and waits may each be called from a different thread, one at a time
/// each.
class ShardExchange {
 public:
  virtual ~ShardExchange() = default;

  /// Starts `shard` = the mean over ranks of this rank's part of `unit` (P * shard.count elements).
  /// The two must not overlap, and are lent until wait_reduce() returns or throws; `unit` may be
  /// overwritten. `priority`: operations of higher priority overtake others. Does not block on the
  /// network. Throws Exception.
  virtual void start_reduce(std::size_t index, LentSpan unit, LentSpan shard, int priority) = 0;

  /// Starts `unit` (P * shard.count elements) = the ranks' shards, concatenated. `shard` may be its
  /// own place in `unit`. Both are lent until wait_gather() returns or throws.
  virtual void start_gather(std::size_t index, LentConstSpan shard, LentSpan unit,
                            int priority) = 0;

  /// Return true if a wait would return or throw at once; also if nothing was started.
  virtual bool reduced(std::size_t index) = 0;
  virtual bool gathered(std::size_t index) = 0;

  /// Block until the operation is complete; return at once if nothing was started. Throw Exception
  /// if the communicator failed.
  virtual void wait_reduce(std::size_t index) = 0;
  virtual void wait_gather(std::size_t index) = 0;

  /// Ends a backward pass. Called after all started reductions have been waited for.
  virtual void end_pass() {}

  /// Returns the averager whose state a checkpoint must hold, or null if reductions are lossless.
  /// Read or written between two passes, after end_pass().
  virtual Averager* feedback() { return nullptr; }
};

struct ShardExchangeOptions {
  std::optional<Duration> timeout;
  std::string algorithm;  ///< Forced for both kinds; empty: the tuner chooses.
  /// Allows gathers to be started in a different order on each rank: each unit's gathers have their
  /// own lane.
  bool gathers_in_any_order = false;
  /// Records operations and waits ("reduce 3", "gather 3"); may be null. Must outlive the
  /// operations.
  TraceRecorder* trace = nullptr;
};

/// Throws Exception(invalid_argument) that names `what` and the unit, unless unit = ranks * shard
/// elements.
void check_shards(std::string_view what, std::size_t index, std::size_t unit, std::size_t shard,
                  std::size_t ranks);

/// Creates an exchange over a communicator, for `units` units (indices 0 .. units - 1). Reductions
/// and gathers use reserved lanes: ranks that make several exchanges must make them in the same
/// order. With one rank, reductions and gathers are copies, or no-ops if both spans are the same
/// memory.
std::unique_ptr<ShardExchange> shard_exchange(std::shared_ptr<Communicator> communicator,
                                              std::size_t units,
                                              const ShardExchangeOptions& options = {});

}  // namespace gradwire
