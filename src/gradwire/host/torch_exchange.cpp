#include "gradwire/host/torch_exchange.h"

#include <algorithm>
#include <exception>

#include "gradwire/exchange/communicator_exchange.h"
#include "gradwire/exchange/traced_exchange.h"
#include "gradwire/host/hybrid_exchange.h"
#include "gradwire/torch/c10d_work.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/releases.h"
#include "gradwire/torch/staged_sequence.h"

namespace gradwire {

std::unique_ptr<exchange::Exchange> torch_exchange(std::string_view who, const ProcessGroup& group,
                                                   const std::vector<torch::Tensor>& tensors,
                                                   std::vector<exchange::UnitShape> units,
                                                   const exchange::ExchangeOptions& options,
                                                   TraceRecorder* trace) {
  if (group->getSize() == 1) return exchange::local_exchange();
  if (auto hybrid = hybrid_backend_of(*group)) {
    return exchange::traced_exchange(
        hybrid_exchange(who, std::move(hybrid), tensors, units, options), trace);
  }
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors) devices.push_back(tensor.device());
  const auto communicator = communicator_of(*group);
  if (!communicator) {
    refuse_codec_without_communicator(who, options.codec);
    return exchange::traced_exchange(group_exchange(group, std::move(devices), options.sharded),
                                     trace);
  }
  auto exchange = exchange::make_exchange(communicator, std::move(units), options);
  if (one_device_type(who, tensors) != c10::DeviceType::CPU)
    exchange = staged_exchange(communicator->rank(), std::move(exchange), std::move(devices));
  return exchange::traced_exchange(std::move(exchange), trace);
}

namespace {

/// Returns true if the backend has the operation. Backends refuse a call of one that they lack, on
/// all ranks alike. Throws if the operation fails: network, store or timeout.
template <class Operation>
bool has(const Operation& operation) {
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = operation();
  } catch (const c10::DistError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
  work->wait();
  return true;
}

bool overlap(const torch::Tensor& part, const torch::Tensor& whole) {
  const auto* begin = static_cast<const std::byte*>(whole.data_ptr());
  const auto* data = static_cast<const std::byte*>(part.data_ptr());
  return data >= begin && data < begin + whole.nbytes();
}

class GroupExchange final : public exchange::Exchange {
 public:
  GroupExchange(ProcessGroup group, std::vector<c10::Device> devices, bool sharded)
      : group_(std::move(group)), devices_(std::move(devices)) {
    averages_ = std::ranges::all_of(
        devices_, [this](const auto& device) { return can_average(*group_, device.type()); });
    if (sharded && !devices_.empty()) find_operations();  // No list of c10d says which there are.
  }

  Work all_reduce(std::size_t unit, LentSpan data, int) override {
    return work_of(all_reduce(tensor_over(data, devices_[unit])));
  }

  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int) override {
    auto input = tensor_over(data, devices_[unit]);
    auto output = tensor_over(shard, devices_[unit]);
    if (has_reduce_scatter_) return work_of(reduce_scatter(input, output));
    return work_of(all_reduce(input), [this, input, output] {
      const auto part = output.numel();
      output.copy_(input.narrow(0, part * group_->getRank(), part));
    });
  }

  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int) override {
    auto input = tensor_over(shard, devices_[unit]);
    auto output = tensor_over(data, devices_[unit]);
    // Not every backend supports an in-place all-gather.
    if (overlap(input, output)) input = input.clone();
    if (has_flat_gather_) return work_of(all_gather_single(*group_, output, input));
    std::vector<std::vector<torch::Tensor>> outputs{output.chunk(group_->getSize())};
    std::vector<torch::Tensor> inputs{input};
    return work_of(group_->allgather(outputs, inputs));
  }

  exchange::ExchangeTraits traits() const override {
    return {.order = exchange::OperationOrder::all, .averages = averages_};
  }
  std::string describe() const override { return "gradients are sent uncompressed"; }

 private:
  void find_operations() {
    const auto options = torch::TensorOptions(torch::kFloat32).device(devices_.front());
    auto whole = torch::zeros({group_->getSize()}, options);
    auto part = torch::zeros({1}, options);
    has_reduce_scatter_ = has([&] { return reduce_scatter(whole, part); });
    has_flat_gather_ = has([&] { return all_gather_single(*group_, whole, part); });
  }

  c10d::ReduceOp op() const { return averages_ ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM; }

  c10::intrusive_ptr<c10d::Work> all_reduce(const torch::Tensor& tensor) {
    c10d::AllreduceOptions options;
    options.reduceOp = op();
    std::vector<torch::Tensor> tensors{tensor};
    return group_->allreduce(tensors, options);
  }

  c10::intrusive_ptr<c10d::Work> reduce_scatter(torch::Tensor& input, torch::Tensor& output) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = op();
    return reduce_scatter_single(*group_, output, input, options);
  }

  ProcessGroup group_;
  std::vector<c10::Device> devices_;
  bool averages_ = false;
  bool has_reduce_scatter_ = false;
  bool has_flat_gather_ = false;
};

}  // namespace

std::unique_ptr<exchange::Exchange> group_exchange(ProcessGroup group,
                                                   std::vector<c10::Device> devices, bool sharded) {
  return std::make_unique<GroupExchange>(std::move(group), std::move(devices), sharded);
}

namespace {

StagedSequence::Wait wait_for(Work work) {
  return [work = std::move(work)] { work.wait(); };
}

class StagedExchange final : public exchange::ExchangeDecorator {
 public:
  StagedExchange(Rank rank, std::unique_ptr<exchange::Exchange> exchange,
                 std::vector<c10::Device> devices)
      : exchange::ExchangeDecorator(std::move(exchange)),
        rank_(rank),
        devices_(std::move(devices)),
        reductions_(rank),
        gathers_(rank) {}

  Work all_reduce(std::size_t unit, LentSpan data, int priority) override {
    const auto tensor = tensor_over(data, devices_[unit]);
    const auto begin = [=, this](const TensorList& on_host, const TensorList&) {
      return wait_for(inner().all_reduce(unit, lend(on_host.front(), name()), priority));
    };
    return work_of(reductions_.run(c10d::OpType::ALLREDUCE, {tensor}, {tensor}, begin));
  }

  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override {
    const auto begin = [=, this](const TensorList& units, const TensorList& shards) {
      return wait_for(inner().reduce_scatter(unit, lend(units.front(), name()),
                                             lend(shards.front(), name()), priority));
    };
    return work_of(reductions_.run(c10d::OpType::REDUCE_SCATTER,
                                   {tensor_over(data, devices_[unit])},
                                   {tensor_over(shard, devices_[unit])}, begin));
  }

  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override {
    const auto begin = [=, this](const TensorList& shards, const TensorList& units) {
      return wait_for(inner().all_gather(unit, lend(shards.front(), name()),
                                         lend(units.front(), name()), priority));
    };
    return work_of(gathers_.run(c10d::OpType::ALLGATHER, {tensor_over(shard, devices_[unit])},
                                {tensor_over(data, devices_[unit])}, begin));
  }

  exchange::ExchangeTraits traits() const override {
    exchange::ExchangeTraits traits = inner().traits();
    traits.order = exchange::OperationOrder::by_kind;
    return traits;
  }

 private:
  ArgumentName name() const { return {"exchange", "unit", rank_}; }

  Rank rank_;
  std::vector<c10::Device> devices_;
  /// Ranks interleave reductions and gathers differently, so neither may wait for the other.
  /// Destroyed first, as they use the members above.
  StagedSequence reductions_;
  StagedSequence gathers_;
};

}  // namespace

std::unique_ptr<exchange::Exchange> staged_exchange(Rank rank,
                                                    std::unique_ptr<exchange::Exchange> exchange,
                                                    std::vector<c10::Device> devices) {
  return std::make_unique<StagedExchange>(rank, std::move(exchange), std::move(devices));
}

}  // namespace gradwire
