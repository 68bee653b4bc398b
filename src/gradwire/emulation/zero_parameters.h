#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gradwire/emulation/zero_units.h"
#include "gradwire/gradient/shard_exchange.h"

namespace gradwire {

/// An emulated model's parameters: where they are, and when they are gathered. Units are marked
/// with their versions, and a visit throws if a unit it uses has not arrived.
class ZeroParameters {
 public:
  virtual ~ZeroParameters() = default;

  /// Called before the layer of this visit runs. Blocks until its units are present; returns true
  /// if it had to wait. Throws Exception(mismatch) if a unit is missing or has another version.
  virtual bool use(std::int64_t visit) = 0;

  /// Called after the layer has run.
  virtual void leave(std::int64_t visit) = 0;

  /// Called when the optimizer has stepped on this rank's part of `unit`, after the backward of
  /// this visit's step.
  virtual void stepped(std::size_t unit, std::int64_t visit) = 0;

  /// Blocks until nothing is in flight on any rank, even if ranks have started prefetching for
  /// `visit`. The optimizer has stepped on all parts.
  virtual void finish(std::int64_t visit) = 0;

  virtual std::size_t peak_bytes() const = 0;
};

/// Stages 1 and 2: every rank has all parameters. A unit is gathered in place after the optimizer
/// step; the next forward waits for it, layer by layer.
std::unique_ptr<ZeroParameters> replicated_parameters(const ZeroUnits& units,
                                                      ShardExchange& exchange);

/// Stage 3: every rank keeps its part of each unit. The units of the current visit and of the next
/// `prefetch` visits are present or being gathered, in pooled memory; all others are dropped. The
/// units that forward uses last are the first that backward needs, and are kept.
std::unique_ptr<ZeroParameters> gathered_parameters(const ZeroUnits& units, ShardExchange& exchange,
                                                    int prefetch);

}  // namespace gradwire
