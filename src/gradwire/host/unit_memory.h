#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gradwire/exchange/exchange.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/step/step_host.h"

namespace gradwire {

/// Memory of a model's gradients, and of its parameters where each rank keeps a shard of them, in
/// units: Buckets (data parallelism) or Shards (ZeRO). A TrainingHost says when. Not thread-safe.
class UnitMemory {
 public:
  virtual ~UnitMemory() = default;

  /// All parameters. Parameters have the numbers of this order.
  virtual const std::vector<NamedTensor>& parameters() const = 0;
  virtual std::size_t unit_of(std::size_t parameter) const = 0;
  virtual std::vector<step::StepUnit> step_units() const = 0;

  /// The shapes of the units, for their exchange, and a tensor on the device of each.
  virtual std::vector<exchange::UnitShape> shapes() const = 0;
  virtual std::vector<at::Tensor> samples() const = 0;
  /// Called once, before any reduction. `exchange` outlives the reductions.
  virtual void exchange_by(exchange::Exchange& exchange) = 0;

  /// Returns true if gradients leave their parameters, and a pass may miss some, which count as
  /// zero. Otherwise they stay in grad(), and every pass has all of them.
  virtual bool takes_gradients() const = 0;

  /// A backward begins whose gradients are reduced.
  virtual void begin_pass() = 0;
  /// Moves the parameter's grad() to its unit. `produced`: this pass has computed it. Returns false
  /// if the pass had filled it before; then it is added (takes_gradients()), or nothing happens.
  virtual bool fill(std::size_t parameter, bool produced) = 0;
  virtual bool is_filled(std::size_t parameter) const = 0;
  /// Keeps the parameter's grad() for a later pass.
  virtual void accumulate(std::size_t parameter) = 0;
  /// Clears all gradients since the last step.
  virtual void drop_gradients() = 0;

  /// These have the meaning of step::StepHost's.
  virtual step::StepHost::Gradients gradients(std::size_t unit) = 0;
  virtual void reduced(std::size_t unit) = 0;
  virtual step::StepHost::Parameters whole_parameters(std::size_t /*unit*/) { return {}; }
  virtual void available(std::size_t /*unit*/) {}
  virtual void release(std::size_t /*unit*/) {}

  /// Makes reading a parameter an error until its unit is available().
  virtual void poison() {}

  /// Reductions apart from those of units.
  virtual std::int64_t extra_operations() const { return 0; }
};

}  // namespace gradwire
