#include "gradwire/exchange/communicator_exchange.h"

#include <cstring>
#include <utility>

namespace gradwire::exchange {
namespace {

class CommunicatorExchange final : public Exchange {
 public:
  CommunicatorExchange(std::shared_ptr<Communicator> communicator, std::vector<UnitShape> units,
                       std::optional<Duration> timeout)
      : communicator_(std::move(communicator)),
        units_(std::move(units)),
        timeout_(timeout),
        first_lane_(communicator_->reserve_lanes(1 + static_cast<int>(units_.size()))),
        reductions_(units_.size()),
        gathers_(units_.size()) {}

  Work all_reduce(std::size_t unit, LentSpan data, int priority) override {
    check_unit(units_, unit, data);
    check_idle(unit, in_flight(reductions_[unit]));
    return started(reductions_[unit], communicator_->all_reduce(std::move(data), ReduceOp::mean,
                                                                operation(priority, 0)));
  }

  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override {
    check_shards("reduction", unit, data.count, shard.count, communicator_->size());
    check_idle(unit, in_flight(reductions_.at(unit)));
    return started(reductions_[unit],
                   communicator_->reduce_scatter(std::move(data), std::move(shard), ReduceOp::mean,
                                                 operation(priority, 0)));
  }

  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override {
    check_shards("gather", unit, data.count, shard.count, communicator_->size());
    check_idle(unit, in_flight(gathers_.at(unit)));
    const int lane = 1 + static_cast<int>(unit);
    return started(gathers_[unit], communicator_->all_gather(std::move(shard), std::move(data),
                                                             operation(priority, lane)));
  }

  ExchangeTraits traits() const override { return {.order = OperationOrder::by_unit}; }
  std::string describe() const override { return "gradients are sent uncompressed"; }

 private:
  static bool in_flight(const Work& work) { return work.valid() && !work.done(); }

  static Work started(Work& slot, Work work) {
    slot = work;
    return work;
  }

  OperationOptions operation(int priority, int lane) const {
    return {.priority = priority, .lane = first_lane_ + lane, .timeout = timeout_};
  }

  std::shared_ptr<Communicator> communicator_;
  std::vector<UnitShape> units_;
  std::optional<Duration> timeout_;
  int first_lane_;                ///< Lane of the reductions; the lanes of gathers follow.
  std::vector<Work> reductions_;  ///< By unit: the last one.
  std::vector<Work> gathers_;
};

class LocalExchange final : public Exchange {
 public:
  Work all_reduce(std::size_t, LentSpan, int) override { return completed_work(); }
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int) override {
    check_shards("reduction", unit, data.count, shard.count, 1);
    return copy(data, shard);
  }
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int) override {
    check_shards("gather", unit, data.count, shard.count, 1);
    return copy(shard, data);
  }
  ExchangeTraits traits() const override { return {}; }
  std::string describe() const override { return "one rank: no communication"; }

 private:
  static Work copy(const LentConstSpan& from, const LentSpan& to) {
    if (from.data != to.data) std::memcpy(to.data, from.data, from.count * size_of(from.type));
    return completed_work();
  }
};

}  // namespace

std::unique_ptr<Exchange> communicator_exchange(std::shared_ptr<Communicator> communicator,
                                                std::vector<UnitShape> units,
                                                std::optional<Duration> timeout) {
  if (communicator->size() == 1) return local_exchange();
  return std::make_unique<CommunicatorExchange>(std::move(communicator), std::move(units), timeout);
}

std::unique_ptr<Exchange> local_exchange() {
  return std::make_unique<LocalExchange>();
}

}  // namespace gradwire::exchange
