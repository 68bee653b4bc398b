#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/base/types.h"
#include "gradwire/exchange/exchange.h"
#include "gradwire/step/overlap.h"
#include "gradwire/step/step_stats.h"

namespace gradwire::step {

/// A unit as the step engine sees it: parameters whose gradients are reduced together.
struct StepUnit {
  std::size_t elements = 0;
  std::size_t gradients = 1;  ///< Number of gradient_ready() calls in a pass that complete it.
  /// Stage 3: the unit belongs to no block, and is present from the beginning of forward to the end
  /// of backward.
  bool is_root = false;
};

/// How training steps are composed. The same on all ranks.
struct StepPolicy {
  /// Sharded over ranks (ZeRO: Rajbhandari et al., arXiv:1910.02054): 0 nothing (data parallelism),
  /// 1 optimizer states, 2 also gradients, 3 also parameters.
  int stage = 0;
  int ranks = 1;
  Overlap overlap = Overlap::full;
  /// Stages 2 and 3: maximum number of units whose gradients are allocated or being reduced.
  std::size_t max_reductions = 4;
  /// Stage 3: minimum number of units that are gathered ahead of the running block.
  std::size_t prefetch_units = 1;
  /// Stage 3: further units are gathered ahead while all of them have at most this many elements.
  std::size_t prefetch_elements = 1'000'000;
  /// The optimizer communicates (norms over ranks), so that all ranks step units in one order.
  bool optimizer_communicates = false;
  /// Later units of a pass have higher priority, because the next forward needs them first.
  bool prioritizes = true;

  /// Returns true if so many units with so many elements are more than are gathered ahead.
  bool exceeds_prefetch(std::size_t units, std::size_t elements) const {
    return units > prefetch_units && elements > prefetch_elements;
  }
  bool shards_parameters() const { return stage == 3 && ranks > 1; }
  bool gathers() const { return stage > 0 && ranks > 1; }
};

/// Memory and arithmetic of a step: what the engine asks of the owner of the tensors. Calls come
/// from within the engine's own calls, on their thread.
class StepHost {
 public:
  virtual ~StepHost() = default;

  /// Returns a unit's gradients for their reduction; gradients that this pass did not produce count
  /// as zero. `shard` receives this rank's part of the mean; it is unused in stage 0, where `whole`
  /// receives the mean.
  struct Gradients {
    LentSpan whole;
    LentSpan shard;
  };
  virtual Gradients gradients(std::size_t unit) = 0;

  /// The mean of the unit's gradients is in place.
  virtual void reduced(std::size_t unit) = 0;

  /// Steps the optimizer on the unit, or on this rank's shard of it. Returns false if there was no
  /// gradient, so that nothing has changed.
  virtual bool step(std::size_t unit) = 0;

  /// Stages 1 to 3: allocates memory for the whole unit if there is none, for a gather.
  struct Parameters {
    LentConstSpan shard;
    LentSpan whole;
  };
  virtual Parameters parameters(std::size_t unit) = 0;

  /// Stages 1 to 3: the unit's parameters are up to date and about to be used.
  virtual void available(std::size_t /*unit*/) {}

  /// Stage 3: frees all but this rank's shard of the parameters. May be called again.
  virtual void release(std::size_t /*unit*/) {}
};

}  // namespace gradwire::step
