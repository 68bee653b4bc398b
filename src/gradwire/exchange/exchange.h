#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/base/lent_span.h"
#include "gradwire/base/work.h"

namespace gradwire::exchange {

/// One parameter in a unit.
struct UnitTensor {
  std::string name;
  std::size_t offset = 0;   ///< Elements from the beginning of the unit.
  std::size_t rows = 1;     ///< Rows as a matrix: the first dimension ...
  std::size_t columns = 1;  ///< ... and all others.
};

/// A unit: gradients or parameters that are exchanged together, contiguous in memory (a bucket of
/// DistributedDataParallel, a flat parameter of FSDP).
struct UnitShape {
  std::size_t count = 0;  ///< Elements.
  DataType type = DataType::float32;
  bool skip_compression = false;  ///< Small tensors, vectors, types other than float32.
  std::vector<UnitTensor> tensors;
};

/// The order in which all ranks must start operations.
enum class OperationOrder : std::uint8_t {
  all,      ///< All operations of the group in one order.
  by_kind,  ///< Reductions (all_reduce, reduce_scatter) in one order, gathers in one order.
  by_unit,  ///< Reductions in one order; the gathers of each unit in one order.
};

/// The capabilities of a group of ranks.
struct ExchangeTraits {
  OperationOrder order = OperationOrder::by_unit;
  /// If false, reductions compute the sum: the caller divides the gradients beforehand.
  bool averages = true;
  /// Reductions depend on those of the pass before (error feedback): wait for all of a pass, and
  /// call end_pass(), before the next begins.
  bool has_state = false;
};

/// Outcome of a step: its means are used or dropped.
enum class StepOutcome : std::uint8_t {
  committed,  ///< The optimizer steps with them.
  abandoned,  ///< They are dropped; the step may be computed again.
};

/// Exchanges units between ranks, several at a time: all_reduce for replicated gradients,
/// reduce_scatter and all_gather for sharded ones (ZeRO: Rajbhandari et al., arXiv:1910.02054,
/// section 7). A sharded unit has P parts of the same size; part r belongs to rank r. Results of
/// all_reduce are bitwise identical on all ranks.
///
/// `unit` is an index into the shapes that the exchange was created with. A unit has at most one
/// reduction and at most one gather in flight, and at most one reduction in a pass. `priority`:
/// operations of higher priority overtake others. Starting an operation does not block on the
/// network. Reductions, gathers and waits may each run on a different thread, one at a time each.
/// All throw Exception. A Work must not outlive the exchange, and is waited for at most once; it
/// may be dropped earlier only if the memory has a keep-alive. It has done(), wait() and one
/// callback; an error is thrown by wait() only.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Starts `data` = its mean over ranks.
  virtual Work all_reduce(std::size_t unit, LentSpan data, int priority) = 0;
  /// Starts `shard` = the mean over ranks of this rank's part of `data` (P * shard.count elements),
  /// which may be overwritten. They do not overlap.
  virtual Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) = 0;
  /// Starts `data` (P * shard.count elements) = the ranks' shards, concatenated. `shard` may be its
  /// own place in `data`.
  virtual Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) = 0;

  virtual ExchangeTraits traits() const = 0;

  /// Ends a pass: all reductions of a backward, after they have been waited for.
  virtual void end_pass() {}

  /// Ends a step: all passes since the last one, which have ended. After an abandoned step the
  /// state is that of the last committed one, so that a repeated step has the same bits. The same
  /// outcome on all ranks. Throws Exception(invalid_argument) if a step with state is abandoned
  /// without ExchangeOptions::can_abandon.
  virtual void end_step(StepOutcome /*outcome*/) {}

  /// The states that a checkpoint must hold for a resumed run to be bitwise identical: the
  /// error-feedback residuals, by name ("PARAMETER.sent", "PARAMETER.mean", "codec.step"), as spans
  /// of live memory. Called between passes.
  struct State {
    std::string name;
    LentSpan data;
  };
  virtual std::vector<State> state() { return {}; }

  /// Restores what state() of this rank returned in an earlier run. State missing from `saved` is
  /// reset; unknown names are ignored. Called between passes. Throws Exception(invalid_argument)
  /// that names the parameter if its shape or type differs.
  struct SavedState {
    std::string name;
    LentConstSpan data;
  };
  virtual void load_state(const std::vector<SavedState>& /*saved*/) {}

  /// Describes in one readable line how gradients are sent, and why.
  virtual std::string describe() const = 0;
};

/// Base of decorators: forwards every call to another exchange.
class ExchangeDecorator : public Exchange {
 public:
  Work all_reduce(std::size_t unit, LentSpan data, int priority) override {
    return exchange_->all_reduce(unit, std::move(data), priority);
  }
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override {
    return exchange_->reduce_scatter(unit, std::move(data), std::move(shard), priority);
  }
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override {
    return exchange_->all_gather(unit, std::move(shard), std::move(data), priority);
  }
  ExchangeTraits traits() const override { return exchange_->traits(); }
  void end_pass() override { exchange_->end_pass(); }
  void end_step(StepOutcome outcome) override { exchange_->end_step(outcome); }
  std::vector<State> state() override { return exchange_->state(); }
  void load_state(const std::vector<SavedState>& saved) override { exchange_->load_state(saved); }
  std::string describe() const override { return exchange_->describe(); }

 protected:
  explicit ExchangeDecorator(std::unique_ptr<Exchange> exchange) : owned_(std::move(exchange)) {}
  /// `exchange` must outlive this.
  explicit ExchangeDecorator(Exchange& exchange) : exchange_(&exchange) {}

  Exchange& inner() const { return *exchange_; }

 private:
  std::unique_ptr<Exchange> owned_;  ///< Null if the caller owns the exchange.
  Exchange* exchange_ = owned_.get();
};

}  // namespace gradwire::exchange

/// Argument checks of exchanges. All throw Exception(invalid_argument).
namespace gradwire::exchange {

/// Checks that `data` has the count and type of `units[unit]`.
void check_unit(const std::vector<UnitShape>& units, std::size_t unit, const LentSpan& data);

/// Checks that a unit is not started again before it was waited for.
void check_idle(std::size_t unit, bool in_flight);

/// Checks that `count` elements are `ranks` shards of `shard`; the error names `what` and the unit.
void check_shards(std::string_view what, std::size_t unit, std::size_t count, std::size_t shard,
                  int ranks);

/// Checks that all units without skip_compression are float32; the error names the first tensor
/// that is not.
void check_codable(const std::vector<UnitShape>& units, const std::string& codec);

}  // namespace gradwire::exchange
