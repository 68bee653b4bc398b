#include "gradwire/exchange/compressed_exchange.h"

#include <cstring>
#include <utility>

#include "gradwire/base/refuse.h"

namespace gradwire::exchange {

CompressedExchange::CompressedExchange(std::unique_ptr<Exchange> plain,
                                       std::shared_ptr<Communicator> communicator,
                                       std::vector<UnitShape> units, const ExchangeOptions& options)
    : plain_(std::move(plain)),
      communicator_(std::move(communicator)),
      units_(std::move(units)),
      options_(options),
      in_flight_(units_.size()),
      stages_(std::make_unique<UnitStages>(
          units_.size(), [this](const std::string& why) { communicator_->abort(why); })) {
  check_codable(units_, options_.codec);
}

CompressedExchange::~CompressedExchange() = default;

ExchangeTraits CompressedExchange::traits() const {
  ExchangeTraits traits = plain_->traits();
  traits.has_state = true;
  return traits;
}

bool CompressedExchange::is_coded(std::size_t unit) const {
  return coded_ && is_ready() && pieces_of(unit) > 0;
}

/// Pieces and residuals are laid out for one kind of reduction.
void CompressedExchange::require_kind(bool sharded, std::size_t unit) const {
  if (pieces_of(unit) == 0 || sharded == options_.sharded) return;
  refuse(
      "bucket {}: this exchange compresses {} only; set "
      "ExchangeOptions::sharded accordingly",
      unit, options_.sharded ? "reduce-scatters" : "all-reduces");
}

/// The first step starts from the state before it.
void CompressedExchange::keep_state() {
  if (options_.can_abandon) committed_.emplace(state());
}

void CompressedExchange::end_step(StepOutcome outcome) {
  if (outcome == StepOutcome::committed) return keep_state();
  if (!options_.can_abandon) {
    refuse("a step with codec {} is abandoned; set ExchangeOptions::can_abandon", options_.codec);
  }
  if (committed_) restore(committed_->saved());
}

void CompressedExchange::load_state(const std::vector<SavedState>& saved) {
  restore(saved);
  keep_state();
}

void CompressedExchange::add_residuals(std::size_t unit, const LentSpan& data) {
  if (pieces_of(unit) == 0) return;
  apply_residuals(unit, std::span(static_cast<float*>(data.data), data.count));
}

Work CompressedExchange::all_reduce(std::size_t unit, LentSpan data, int priority) {
  check_unit(units_, unit, data);
  require_kind(/*sharded=*/false, unit);
  if (!committed_) keep_state();
  if (is_coded(unit)) return start_coded(unit, std::move(data), {}, priority);
  add_residuals(unit, data);
  return plain_->all_reduce(unit, std::move(data), priority);
}

Work CompressedExchange::reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                        int priority) {
  check_unit(units_, unit, data);
  check_shards("reduction", unit, data.count, shard.count, communicator_->size());
  require_kind(/*sharded=*/true, unit);
  if (!committed_) keep_state();
  if (is_coded(unit)) return start_coded(unit, std::move(data), std::move(shard), priority);
  add_residuals(unit, data);
  return plain_->reduce_scatter(unit, std::move(data), std::move(shard), priority);
}

Work CompressedExchange::all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                    int priority) {
  return plain_->all_gather(unit, std::move(shard), std::move(data), priority);
}

Work CompressedExchange::start_coded(std::size_t unit, LentSpan data, LentSpan shard,
                                     int priority) {
  const std::span<float> values(static_cast<float*>(data.data), data.count);
  Work work = stages_->begin(unit, pieces_of(unit), priority, [this, unit, shard] {
    if (shard.data != nullptr) copy_shard(unit, shard);
    in_flight_[unit] = {};
  });
  in_flight_[unit] = {values, priority, std::move(data.keep_alive)};
  begin_coded(unit);
  return work;
}

/// Takes this rank's part of the mean from its place in the unit.
void CompressedExchange::copy_shard(std::size_t unit, const LentSpan& shard) const {
  const auto rank = static_cast<std::size_t>(communicator_->rank());
  const float* own = in_flight_[unit].data.data() + rank * shard.count;
  if (own != shard.data) std::memcpy(shard.data, own, shard.count * sizeof(float));
}

void CompressedExchange::reserve_lanes(std::size_t count) {
  first_lane_ = communicator_->reserve_lanes(static_cast<int>(count));
}

OperationOptions CompressedExchange::operation(std::size_t unit, int lane) const {
  return {.priority = in_flight_[unit].priority,
          .lane = first_lane_ + lane,
          .timeout = options_.timeout};
}

}  // namespace gradwire::exchange
