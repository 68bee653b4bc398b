#include <utility>

#include "gradwire/torch/staged_sequence.h"
#include "gradwire/train/exchange/c10d_transfer.h"
#include "gradwire/train/exchange/torch_exchange.h"

namespace gradwire {
namespace {

/// As StagedSequence waits for an operation.
StagedSequence::Wait wait_for(std::unique_ptr<UnitTransfer> transfer) {
  return [shared = std::shared_ptr<UnitTransfer>(std::move(transfer))] { shared->wait(); };
}

class StagedExchange final : public ExchangeDecorator {
 public:
  StagedExchange(Rank rank, std::unique_ptr<Exchange> exchange, std::vector<c10::Device> devices)
      : ExchangeDecorator(std::move(exchange)),
        rank_(rank),
        devices_(std::move(devices)),
        reductions_(rank),
        gathers_(rank) {}

  std::unique_ptr<UnitTransfer> all_reduce(std::size_t unit, LentSpan data, int priority) override {
    const auto tensor = tensor_over(data, devices_[unit]);
    const auto begin = [=, this](const TensorList& on_host, const TensorList&) {
      return wait_for(inner().all_reduce(unit, lend(on_host.front(), name()), priority));
    };
    return started(reductions_.run(c10d::OpType::ALLREDUCE, {tensor}, {tensor}, begin));
  }

  std::unique_ptr<UnitTransfer> reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                               int priority) override {
    const auto begin = [=, this](const TensorList& units, const TensorList& shards) {
      return wait_for(inner().reduce_scatter(unit, lend(units.front(), name()),
                                             lend(shards.front(), name()), priority));
    };
    return started(reductions_.run(c10d::OpType::REDUCE_SCATTER,
                                   {tensor_over(data, devices_[unit])},
                                   {tensor_over(shard, devices_[unit])}, begin));
  }

  std::unique_ptr<UnitTransfer> all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                           int priority) override {
    const auto begin = [=, this](const TensorList& shards, const TensorList& units) {
      return wait_for(inner().all_gather(unit, lend(shards.front(), name()),
                                         lend(units.front(), name()), priority));
    };
    return started(gathers_.run(c10d::OpType::ALLGATHER, {tensor_over(shard, devices_[unit])},
                                {tensor_over(data, devices_[unit])}, begin));
  }

  ExchangeTraits traits() const override {
    ExchangeTraits traits = inner().traits();
    traits.order = OperationOrder::by_kind;
    return traits;
  }

 private:
  ArgumentName name() const { return {"exchange", "unit", rank_}; }

  static std::unique_ptr<UnitTransfer> started(c10::intrusive_ptr<c10d::Work> work) {
    return std::make_unique<C10dTransfer>(std::move(work));
  }

  Rank rank_;
  std::vector<c10::Device> devices_;
  /// Ranks interleave reductions and gathers differently, so neither may wait for the other.
  /// Destroyed first, as they use the members above.
  StagedSequence reductions_;
  StagedSequence gathers_;
};

}  // namespace

std::unique_ptr<Exchange> staged_exchange(Rank rank, std::unique_ptr<Exchange> exchange,
                                          std::vector<c10::Device> devices) {
  return std::make_unique<StagedExchange>(rank, std::move(exchange), std::move(devices));
}

}  // namespace gradwire
