#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/comm/communicator.h"
#include "gradwire/gradient/averager.h"
#include "gradwire/report/trace.h"

namespace gradwire {

/// Moves flat units of a model between "every rank has all of it" and "every rank has its part":
/// what ZeRO does instead of an all-reduce (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
/// Training Trillion Parameter Models", arXiv:1910.02054, section 7). A unit has P parts of the
/// same size, the r-th of which is rank r's.
///
/// Every rank starts the reductions in the same order, and the gathers in the same order; how the
/// two interleave is each rank's own affair. Each unit has at most one of either kind under way.
/// Calls may come from different threads: those that start reductions, those that start gathers and
/// those that wait for either, one at a time each.
class ShardExchange {
 public:
  virtual ~ShardExchange() = default;

  /// Begins `shard` = the mean over ranks of this rank's part of `unit` (P * shard.count elements).
  /// The two must not overlap, and are lent until wait_reduce() returns or throws; `unit` may be
  /// overwritten. More urgent operations overtake. Does not block for the network. Throws
  /// Exception.
  virtual void start_reduce(std::size_t index, LentSpan unit, LentSpan shard, int urgency) = 0;

  /// Begins `unit` (P * shard.count elements) = the ranks' shards one after the other. `shard` may
  /// be its own place in `unit`. Lent until wait_gather() is over.
  virtual void start_gather(std::size_t index, LentConstSpan shard, LentSpan unit, int urgency) = 0;

  /// Whether a wait would return, or throw, at once; also if nothing was started.
  virtual bool reduced(std::size_t index) = 0;
  virtual bool gathered(std::size_t index) = 0;

  /// Until it is over; at once if nothing was started. Throws Exception, if the communicator
  /// failed.
  virtual void wait_reduce(std::size_t index) = 0;
  virtual void wait_gather(std::size_t index) = 0;

  /// All reductions that were started have been waited for, and those of another backward pass
  /// follow.
  virtual void end_pass() {}

  /// Whose state a checkpoint must hold, if reductions lose anything; null: they do not. To be
  /// read or written between two passes, after end_pass().
  virtual Averager* feedback() { return nullptr; }
};

struct ShardExchangeOptions {
  std::optional<Duration> timeout;
  std::string algorithm;  ///< Forced for both kinds; empty: the tuner's choice.
  /// Gathers, too, may be started in another order on each rank: each unit's have a lane of their
  /// own.
  bool gathers_in_any_order = false;
  /// Where operations and waits are recorded ("reduce 3", "gather 3"), if anywhere. Must outlive
  /// the operations.
  TraceRecorder* trace = nullptr;
};

/// Throws Exception(invalid_argument), which names `what` of which unit, unless `shard` elements of
/// each of `ranks` make `unit`.
void check_shards(std::string_view what, std::size_t index, std::size_t unit, std::size_t shard,
                  std::size_t ranks);

/// Over a communicator, for `units` units (indices 0 .. units - 1). Reductions and gathers have
/// lanes of it for themselves: ranks that make several exchanges make them in the same order. In a
/// world of one, a reduction and a gather are copies, or nothing where both spans are the same
/// memory.
std::unique_ptr<ShardExchange> shard_exchange(std::shared_ptr<Communicator> communicator,
                                              std::size_t units,
                                              const ShardExchangeOptions& options = {});

}  // namespace gradwire
