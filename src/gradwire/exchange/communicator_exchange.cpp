#include "gradwire/exchange/communicator_exchange.h"

#include <cstring>
#include <utility>

namespace gradwire::exchange {
namespace {

class WorkTransfer final : public UnitTransfer {
 public:
  explicit WorkTransfer(engine::Work work) : work_(std::move(work)) {}

  bool done() override { return work_.done(); }
  void wait() override { work_.wait(); }
  void on_done(std::function<void()> callback) override {
    work_.on_done([callback = std::move(callback)](const engine::Work&) { callback(); });
  }

 private:
  engine::Work work_;
};

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

  std::unique_ptr<UnitTransfer> all_reduce(std::size_t unit, LentSpan data, int priority) override {
    check_unit(units_, unit, data);
    check_idle(unit, in_flight(reductions_[unit]));
    return started(reductions_[unit], communicator_->all_reduce(std::move(data), ReduceOp::mean,
                                                                operation(priority, 0)));
  }

  std::unique_ptr<UnitTransfer> reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                               int priority) override {
    check_shards("reduction", unit, data.count, shard.count, communicator_->size());
    check_idle(unit, in_flight(reductions_.at(unit)));
    return started(reductions_[unit],
                   communicator_->reduce_scatter(std::move(data), std::move(shard), ReduceOp::mean,
                                                 operation(priority, 0)));
  }

  std::unique_ptr<UnitTransfer> all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                           int priority) override {
    check_shards("gather", unit, data.count, shard.count, communicator_->size());
    check_idle(unit, in_flight(gathers_.at(unit)));
    const int lane = 1 + static_cast<int>(unit);
    return started(gathers_[unit], communicator_->all_gather(std::move(shard), std::move(data),
                                                             operation(priority, lane)));
  }

  ExchangeTraits traits() const override { return {.order = OperationOrder::by_unit}; }
  std::string describe() const override { return "gradients are sent uncompressed"; }

 private:
  static bool in_flight(const engine::Work& work) { return work.valid() && !work.done(); }

  static std::unique_ptr<UnitTransfer> started(engine::Work& slot, engine::Work work) {
    slot = work;
    return std::make_unique<WorkTransfer>(std::move(work));
  }

  OperationOptions operation(int priority, int lane) const {
    return {.priority = priority, .lane = first_lane_ + lane, .timeout = timeout_};
  }

  std::shared_ptr<Communicator> communicator_;
  std::vector<UnitShape> units_;
  std::optional<Duration> timeout_;
  int first_lane_;                        ///< Lane of the reductions; the lanes of gathers follow.
  std::vector<engine::Work> reductions_;  ///< By unit: the last one.
  std::vector<engine::Work> gathers_;
};

class CompletedTransfer final : public UnitTransfer {
 public:
  bool done() override { return true; }
  void wait() override {}
  void on_done(std::function<void()> callback) override { callback(); }
};

class LocalExchange final : public Exchange {
 public:
  std::unique_ptr<UnitTransfer> all_reduce(std::size_t, LentSpan, int) override {
    return std::make_unique<CompletedTransfer>();
  }
  std::unique_ptr<UnitTransfer> reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                               int) override {
    check_shards("reduction", unit, data.count, shard.count, 1);
    return copy(data, shard);
  }
  std::unique_ptr<UnitTransfer> all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                           int) override {
    check_shards("gather", unit, data.count, shard.count, 1);
    return copy(shard, data);
  }
  ExchangeTraits traits() const override { return {}; }
  std::string describe() const override { return "one rank: no communication"; }

 private:
  static std::unique_ptr<UnitTransfer> copy(const LentConstSpan& from, const LentSpan& to) {
    if (from.data != to.data) std::memcpy(to.data, from.data, from.count * size_of(from.type));
    return std::make_unique<CompletedTransfer>();
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
