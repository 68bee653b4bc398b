#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/comm/communicator.h"
#include "gradwire/exchange/exchange.h"
#include "gradwire/exchange/exchange_state.h"
#include "gradwire/exchange/make_exchange.h"
#include "gradwire/exchange/unit_stages.h"

namespace gradwire::exchange {

/// Decorator that compresses reductions: the common base of all codecs. Gathers, units with
/// skip_compression, and all reductions while the codec is off go through the wrapped exchange.
/// Other units pass through stages (UnitStages).
class CompressedExchange : public Exchange {
 public:
  ~CompressedExchange() override;

  Work all_reduce(std::size_t unit, LentSpan data, int priority) final;
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) final;
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) final;
  ExchangeTraits traits() const final;
  void end_pass() override { ++step_; }
  void end_step(StepOutcome outcome) final;
  void load_state(const std::vector<SavedState>& saved) final;

  /// Switches the codec on or off, from the next reduction on. While it is off, the error-feedback
  /// residual is added to the gradients. Called between passes, on all ranks alike.
  void use_codec(bool yes) { coded_ = yes; }

 protected:
  CompressedExchange(std::unique_ptr<Exchange> plain, std::shared_ptr<Communicator> communicator,
                     std::vector<UnitShape> units, const ExchangeOptions& options);

  /// Orders tasks of equal priority.
  enum Stage : int { kFirst, kSecond, kThird };

  struct Coded {
    std::span<float> data;
    int priority = 0;
    std::shared_ptr<const void> keep_alive;
  };

  /// Returns true if the codec applies in this pass when it is switched on.
  virtual bool is_ready() const { return true; }
  /// Number of pieces of a unit that complete independently; 0 if the unit is never coded.
  virtual std::size_t pieces_of(std::size_t unit) const = 0;
  /// Queues the first task of each piece.
  virtual void begin_coded(std::size_t unit) = 0;
  /// Adds the error-feedback residual to gradients that are about to be sent uncompressed.
  virtual void apply_residuals(std::size_t unit, std::span<float> gradients) = 0;
  /// load_state(), without the copy of the last committed step.
  virtual void restore(const std::vector<SavedState>& saved) = 0;

  /// A task's exception fails the exchange and aborts the communicator.
  UnitStages& stages() { return *stages_; }

  /// Reserves lanes 0 to count - 1 for this exchange. Called once, before any unit is started.
  void reserve_lanes(std::size_t count);
  OperationOptions operation(std::size_t unit, int lane) const;
  const Coded& coded(std::size_t unit) const { return in_flight_[unit]; }
  std::int64_t& step() { return step_; }
  std::int64_t step() const { return step_; }

  Communicator& communicator() const { return *communicator_; }
  const std::vector<UnitShape>& units() const { return units_; }
  const ExchangeOptions& options() const { return options_; }

  /// Called first by the destructor of every derived class that adds tasks.
  void stop() { stages_->stop(); }

 private:
  bool is_coded(std::size_t unit) const;
  void require_kind(bool sharded, std::size_t unit) const;
  void keep_state();
  void add_residuals(std::size_t unit, const LentSpan& data);
  Work start_coded(std::size_t unit, LentSpan data, LentSpan shard, int priority);
  void copy_shard(std::size_t unit, const LentSpan& shard) const;

  std::unique_ptr<Exchange> plain_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<UnitShape> units_;
  ExchangeOptions options_;
  int first_lane_ = 0;
  bool coded_ = true;
  std::int64_t step_ = 0;  ///< Number of end_pass() calls.
  /// The state after the last committed step; kept if steps may be abandoned.
  std::optional<ExchangeStateCopy> committed_;
  std::vector<Coded> in_flight_;
  std::unique_ptr<UnitStages> stages_;
};

}  // namespace gradwire::exchange
