#include "gradwire/train/zero/staged_exchange.h"

#include <utility>

#include "gradwire/torch/staged_sequence.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/zero/work_exchange.h"

namespace gradwire {
namespace {

class StagedExchange final : public WorkExchange {
 public:
  StagedExchange(Rank rank, std::unique_ptr<ShardExchange> own, std::size_t units,
                 TraceRecorder* trace)
      : WorkExchange(units, trace),
        rank_(rank),
        own_(std::move(own)),
        reductions_(rank),
        gathers_(rank) {}

  void start_reduce(std::size_t index, const torch::Tensor& unit, const torch::Tensor& shard,
                    int priority) override {
    const auto begin = [=, this](const TensorList& units, const TensorList& shards) {
      own_->start_reduce(index, lent(units, "gradients"), lent(shards, "gradients"), priority);
      return [this, index] { own_->wait_reduce(index); };
    };
    begin_reduction(index, unit).work =
        reductions_.run(c10d::OpType::REDUCE_SCATTER, {unit}, {shard}, begin);
  }

  void start_gather(std::size_t index, const torch::Tensor& shard, const torch::Tensor& unit,
                    int priority) override {
    const auto begin = [=, this](const TensorList& shards, const TensorList& units) {
      own_->start_gather(index, lent(shards, "parameters"), lent(units, "parameters"), priority);
      return [this, index] { own_->wait_gather(index); };
    };
    begin_gather(index, unit).work = gathers_.run(c10d::OpType::ALLGATHER, {shard}, {unit}, begin);
  }

  bool requires_same_order() const override { return false; }
  void end_pass() override { own_->end_pass(); }
  Averager* feedback() override { return own_->feedback(); }

 private:
  LentSpan lent(const TensorList& tensors, std::string_view what) const {
    return lend(tensors.front(), {"Zero", what, rank_});
  }

  Rank rank_;
  std::unique_ptr<ShardExchange> own_;
  /// Ranks interleave reductions and gathers differently, so neither may wait for the other.
  /// Destroyed first, as they use the members above.
  StagedSequence reductions_;
  StagedSequence gathers_;
};

}  // namespace

std::unique_ptr<UnitExchange> staged_exchange(Rank rank, std::unique_ptr<ShardExchange> own,
                                              std::size_t units, TraceRecorder* trace) {
  return std::make_unique<StagedExchange>(rank, std::move(own), units, trace);
}

}  // namespace gradwire
