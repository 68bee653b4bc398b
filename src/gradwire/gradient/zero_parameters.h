#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gradwire/gradient/shard_exchange.h"
#include "gradwire/gradient/zero_units.h"

namespace gradwire {

/// An emulated model's parameters: where they are, and when they travel. Units are marked with
/// their versions, and a visit throws if what it runs on has not come.
class ZeroParameters {
 public:
  virtual ~ZeroParameters() = default;

  /// The layer of this visit is about to run: returns when its units are there, and says whether
  /// that had to be waited for. Throws Exception(mismatch) if one cannot come.
  virtual bool use(std::int64_t visit) = 0;

  /// The layer has run.
  virtual void leave(std::int64_t visit) = 0;

  /// After the backward of this visit's step the optimiser has stepped on this rank's part.
  virtual void stepped(std::size_t unit, std::int64_t visit) = 0;

  /// Until nothing is under way on any rank, although `visit` may be the next. The optimiser has
  /// stepped on all parts.
  virtual void finish(std::int64_t visit) = 0;

  virtual std::size_t peak_bytes() const = 0;
};

/// Stages 1 and 2: every rank has all of them. A unit is gathered in place when it has been stepped
/// on; the next forward waits for it, layer by layer.
std::unique_ptr<ZeroParameters> replicated_parameters(const ZeroUnits& units,
                                                      ShardExchange& exchange);

/// Stage 3: every rank has its part of each unit, and what this visit and the `prefetch` next ones
/// need is there or on its way, in memory that is used again; anything else is dropped. Units that
/// forward has used last are the first that backward needs, and stay.
std::unique_ptr<ZeroParameters> gathered_parameters(const ZeroUnits& units, ShardExchange& exchange,
                                                    int prefetch);

}  // namespace gradwire
