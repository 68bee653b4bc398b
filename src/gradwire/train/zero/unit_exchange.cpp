#include "gradwire/train/zero/unit_exchange.h"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/gradient/coded_shard_exchange.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

/// Over gradwire's own communicator.
class OwnExchange final : public UnitExchange {
 public:
  OwnExchange(Rank rank, std::unique_ptr<ShardExchange> exchange)
      : rank_(rank), exchange_(std::move(exchange)) {}

  void start_reduce(std::size_t index, const torch::Tensor& unit, const torch::Tensor& shard,
                    int urgency) override {
    exchange_->start_reduce(index, lent(unit, "gradients"), lent(shard, "gradients"), urgency);
  }
  void start_gather(std::size_t index, const torch::Tensor& shard, const torch::Tensor& unit,
                    int urgency) override {
    exchange_->start_gather(index, lent(shard, "parameters"), lent(unit, "parameters"), urgency);
  }
  bool in_one_order() const override { return false; }
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

/// One operation of a group of others. What is to be done once it is over, is done by wait().
struct GroupWork {
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void()> finish;
  std::string name;
  std::int64_t step = -1;
  Time begin{};
  std::uint64_t bytes = 0;
};

bool lacks_operation(const std::exception& error) {
  return std::string_view(error.what()).find("does not support") != std::string_view::npos;
}

/// Over any c10d group.
class GroupExchange final : public UnitExchange {
 public:
  GroupExchange(ProcessGroup group, std::size_t units, TraceRecorder* trace)
      : group_(std::move(group)), trace_(trace), reductions_(units), gathers_(units) {}

  void start_reduce(std::size_t index, const torch::Tensor& unit, const torch::Tensor& shard,
                    int /*urgency*/) override {
    auto& reduction = reductions_[index] = begun("reduce", index, unit);
    if (has_reduce_scatter_) {
      try {
        reduction.work = reduce_scatter(unit, shard);
        return;
      } catch (const std::exception& error) {
        if (!lacks_operation(error)) throw;
        has_reduce_scatter_ = false;  // The same on all ranks.
      }
    }
    c10d::AllreduceOptions options;
    options.reduceOp = op(unit);
    std::vector<torch::Tensor> tensors{unit};
    reduction.work = group_->allreduce(tensors, options);
    reduction.finish = [part = own_part(unit), shard] { shard.copy_(part); };
  }

  void start_gather(std::size_t index, const torch::Tensor& shard, const torch::Tensor& unit,
                    int /*urgency*/) override {
    auto& gather = gathers_[index] = begun("gather", index, unit);
    // Not every backend can gather a tensor into itself.
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

  bool in_one_order() const override { return true; }
  bool reduced(std::size_t index) override {
    const auto& work = reductions_[index].work;
    return !work || work->isCompleted();
  }
  void wait_reduce(std::size_t index) override { wait(reductions_[index]); }
  void wait_gather(std::size_t index) override { wait(gathers_[index]); }

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

  GroupWork begun(const char* kind, std::size_t index, const torch::Tensor& unit) const {
    if (trace_ == nullptr) return {};
    return {nullptr,        nullptr,       fmt::format("{} {}", kind, index),
            trace_->step(), trace_->now(), unit.nbytes()};
  }

  void wait(GroupWork& slot) {
    auto over = std::exchange(slot, {});
    if (!over.work) return;
    {
      const std::string name = "wait for " + over.name;
      const TraceScope scope(over.work->isCompleted() ? nullptr : trace_, TraceKind::wait, name);
      over.work->wait();
    }
    const torch::NoGradGuard no_grad;
    if (over.finish) over.finish();
    if (trace_ == nullptr) return;
    trace_->record(TraceKind::communication, over.name, over.step, over.begin, trace_->now(),
                   over.bytes);
  }

  ProcessGroup group_;
  TraceRecorder* trace_;
  bool has_reduce_scatter_ = true;
  bool has_flat_gather_ = true;
  std::vector<GroupWork> reductions_;
  std::vector<GroupWork> gathers_;
};

/// A world of one.
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
  bool in_one_order() const override { return false; }
  bool reduced(std::size_t) override { return true; }
  void wait_reduce(std::size_t) override {}
  void wait_gather(std::size_t) override {}
};

}  // namespace

std::unique_ptr<UnitExchange> unit_exchange(const ProcessGroup& group,
                                            const std::vector<BucketShape>& units,
                                            const AveragerOptions& codec, TraceRecorder* trace) {
  if (group->getSize() == 1) return std::make_unique<NoExchange>();
  if (auto communicator = communicator_of(*group)) {
    ShardExchangeOptions options;
    options.trace = trace;
    auto exchange = coded_shard_exchange(communicator, units, codec, options);
    return std::make_unique<OwnExchange>(communicator->rank(), std::move(exchange));
  }
  refuse_codec_of_other_groups("Zero", codec.codec);
  return std::make_unique<GroupExchange>(group, units.size(), trace);
}

}  // namespace gradwire
