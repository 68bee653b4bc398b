#include "gradwire/train/zero/unit_exchange.h"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/gradient/coded_shard_exchange.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/zero/staged_exchange.h"
#include "gradwire/train/zero/work_exchange.h"

namespace gradwire {
namespace {

/// Over gradwire's communicator.
class OwnExchange final : public UnitExchange {
 public:
  OwnExchange(Rank rank, std::unique_ptr<ShardExchange> exchange)
      : rank_(rank), exchange_(std::move(exchange)) {}

  void start_reduce(std::size_t index, const torch::Tensor& unit, const torch::Tensor& shard,
                    int priority) override {
    exchange_->start_reduce(index, lent(unit, "gradients"), lent(shard, "gradients"), priority);
  }
  void start_gather(std::size_t index, const torch::Tensor& shard, const torch::Tensor& unit,
                    int priority) override {
    exchange_->start_gather(index, lent(shard, "parameters"), lent(unit, "parameters"), priority);
  }
  bool requires_same_order() const override { return false; }
  bool reduced(std::size_t index) override { return exchange_->reduced(index); }
  void wait_reduce(std::size_t index) override { exchange_->wait_reduce(index); }
  void wait_gather(std::size_t index) override { exchange_->wait_gather(index); }
  void end_pass() override { exchange_->end_pass(); }
  Averager* feedback() override { return exchange_->feedback(); }

 private:
  LentSpan lent(const torch::Tensor& tensor, std::string_view what) const {
    return lend(tensor, {"Zero", what, rank_});
  }

  Rank rank_;
  std::unique_ptr<ShardExchange> exchange_;
};

bool lacks_operation(const std::exception& error) {
  return std::string_view(error.what()).find("does not support") != std::string_view::npos;
}

/// Over any c10d group.
class GroupExchange final : public WorkExchange {
 public:
  GroupExchange(ProcessGroup group, std::size_t units, TraceRecorder* trace)
      : WorkExchange(units, trace), group_(std::move(group)) {}

  void start_reduce(std::size_t index, const torch::Tensor& unit, const torch::Tensor& shard,
                    int /*priority*/) override {
    auto& reduction = begin_reduction(index, unit);
    if (has_reduce_scatter_) {
      try {
        reduction.work = reduce_scatter(unit, shard);
        return;
      } catch (const std::exception& error) {
        if (!lacks_operation(error)) throw;
        has_reduce_scatter_ = false;  // Unsupported on all ranks alike.
      }
    }
    c10d::AllreduceOptions options;
    options.reduceOp = op(unit);
    std::vector<torch::Tensor> tensors{unit};
    reduction.work = group_->allreduce(tensors, options);
    reduction.finish = [part = own_part(unit), shard] { shard.copy_(part); };
  }

  void start_gather(std::size_t index, const torch::Tensor& shard, const torch::Tensor& unit,
                    int /*priority*/) override {
    auto& gather = begin_gather(index, unit);
    // Not every backend supports an in-place all-gather.
    auto input = shard.is_alias_of(unit) ? shard.clone() : shard;
    auto output = unit;
    if (has_flat_gather_) {
      try {
        gather.work = group_->all_gather_single(output, input);
        return;
      } catch (const std::exception& error) {
        if (!lacks_operation(error)) throw;
        has_flat_gather_ = false;
      }
    }
    std::vector<std::vector<torch::Tensor>> outputs{unit.chunk(group_->getSize())};
    std::vector<torch::Tensor> inputs{input};
    gather.work = group_->allgather(outputs, inputs);
  }

  bool requires_same_order() const override { return true; }

 private:
  c10::intrusive_ptr<c10d::Work> reduce_scatter(const torch::Tensor& unit,
                                                const torch::Tensor& shard) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = op(unit);
    auto input = unit;
    auto output = shard;
    return group_->reduce_scatter_single(output, input, options);
  }

  c10d::ReduceOp op(const torch::Tensor& tensor) const {
    return can_average(*group_, tensor.device().type()) ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
  }

  torch::Tensor own_part(const torch::Tensor& unit) const {
    const auto part = unit.numel() / group_->getSize();
    return unit.narrow(0, part * group_->getRank(), part);
  }

  ProcessGroup group_;
  bool has_reduce_scatter_ = true;
  bool has_flat_gather_ = true;
};

/// World size 1.
class NoExchange final : public UnitExchange {
 public:
  void start_reduce(std::size_t, const torch::Tensor& unit, const torch::Tensor& shard,
                    int) override {
    if (!shard.is_alias_of(unit)) shard.copy_(unit);
  }
  void start_gather(std::size_t, const torch::Tensor& shard, const torch::Tensor& unit,
                    int) override {
    if (!shard.is_alias_of(unit)) unit.copy_(shard);
  }
  bool requires_same_order() const override { return false; }
  bool reduced(std::size_t) override { return true; }
  void wait_reduce(std::size_t) override {}
  void wait_gather(std::size_t) override {}
};

}  // namespace

std::unique_ptr<UnitExchange> unit_exchange(const ProcessGroup& group,
                                            const std::vector<BucketShape>& units,
                                            const std::vector<torch::Tensor>& shards,
                                            const AveragerOptions& codec, TraceRecorder* trace) {
  if (group->getSize() == 1) return std::make_unique<NoExchange>();
  if (auto communicator = communicator_of(*group)) {
    const bool staged = one_device_type("Zero", shards) != c10::DeviceType::CPU;
    ShardExchangeOptions options;
    if (!staged) options.trace = trace;
    auto own = coded_shard_exchange(communicator, units, codec, options);
    const Rank rank = communicator->rank();
    if (staged) return staged_exchange(rank, std::move(own), units.size(), trace);
    return std::make_unique<OwnExchange>(rank, std::move(own));
  }
  refuse_codec_without_communicator("Zero", codec.codec);
  return std::make_unique<GroupExchange>(group, units.size(), trace);
}

}  // namespace gradwire
