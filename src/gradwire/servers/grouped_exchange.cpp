#include "gradwire/servers/grouped_exchange.h"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/refuse.h"
#include "gradwire/servers/messages.h"
#include "gradwire/servers/scale.h"

namespace gradwire::servers {
namespace {

/// Stages of a unit (exchange::UnitStages).
enum Stage : int { kFirst, kSecond };

}  // namespace

std::string group_text(Rank first, int members) {
  return fmt::format("group of workers {} to {}, whose rank 0 is worker {}: ", first,
                     first + members - 1, first);
}

GroupedExchange::GroupedExchange(std::unique_ptr<Exchange> served, ServedExchange& pushes,
                                 std::shared_ptr<Communicator> group, Rank first,
                                 std::vector<exchange::UnitShape> units)
    : ExchangeDecorator(std::move(served)),
      pushes_(pushes),
      group_(std::move(group)),
      units_(std::move(units)),
      slices_(units_.size()),
      first_lane_(group_->reserve_lanes(1 + static_cast<int>(units_.size()))),
      reductions_(
          units_.size(), [this](const std::string& why) { group_->abort(why); },
          group_text(first, group_->size())),
      gathers_(
          units_.size(), [this](const std::string& why) { group_->abort(why); },
          group_text(first, group_->size())) {}

GroupedExchange::~GroupedExchange() {
  reductions_.stop();
  gathers_.stop();
}

/// Memory for this worker's slice of the mean.
LentSpan GroupedExchange::slice_of(std::size_t unit) {
  const exchange::UnitShape& shape = units_[unit];
  const std::size_t count = shape.count / static_cast<std::size_t>(group_->size());
  if (!slices_[unit]) slices_[unit] = std::make_shared<Buffer>(count * size_of(shape.type));
  return {slices_[unit]->data(), count, shape.type, slices_[unit]};
}

Work GroupedExchange::reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                     int priority) {
  exchange::check_unit(units_, unit, data);
  pushes_.announce(unit);
  scale(data, weight_);
  Work pushed = reductions_.begin(unit, 1, priority);
  const LentSpan slice = slice_of(unit);
  const Work reduced = group_->reduce_scatter(std::move(data), slice, ReduceOp::mean,
                                              {.priority = priority, .lane = first_lane_});
  reductions_.add_after(reduced, unit, kFirst, [this, unit, slice, shard, priority] {
    const Work push = inner().reduce_scatter(unit, slice, shard, priority);
    reductions_.add_after(push, unit, kSecond, [this, unit] { reductions_.piece_done(unit); });
  });
  return pushed;
}

Work GroupedExchange::all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                 int priority) {
  exchange::check_unit(units_, unit, data);
  if (!pushes_.pulls(unit)) return completed_work();
  const LentSpan slice = part_of(data, group_->rank(), group_->size());
  Work gathered = gathers_.begin(unit, 1, priority);
  const Work pulled = inner().all_gather(unit, shard, slice, priority);
  gathers_.add_after(pulled, unit, kFirst, [this, unit, slice, data, priority] {
    const OperationOptions options{.priority = priority,
                                   .lane = first_lane_ + 1 + static_cast<int>(unit)};
    const Work spread =
        group_->all_gather({slice.data, slice.count, slice.type, slice.keep_alive}, data, options);
    gathers_.add_after(spread, unit, kSecond, [this, unit] { gathers_.piece_done(unit); });
  });
  return gathered;
}

std::string GroupedExchange::describe() const {
  return fmt::format("{}, by groups of {} workers", inner().describe(), group_->size());
}

}  // namespace gradwire::servers
