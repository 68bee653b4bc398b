#include <algorithm>
#include <exception>
#include <utility>

#include "gradwire/train/exchange/c10d_transfer.h"
#include "gradwire/train/exchange/torch_exchange.h"

namespace gradwire {
namespace {

/// Returns true if the backend has the operation. Backends refuse operations that they lack before
/// they communicate, on all ranks alike.
template <class Operation>
bool has(const Operation& operation) {
  try {
    operation()->wait();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool overlap(const torch::Tensor& part, const torch::Tensor& whole) {
  const auto* begin = static_cast<const std::byte*>(whole.data_ptr());
  const auto* data = static_cast<const std::byte*>(part.data_ptr());
  return data >= begin && data < begin + whole.nbytes();
}

class GroupExchange final : public Exchange {
 public:
  GroupExchange(ProcessGroup group, std::vector<c10::Device> devices, bool sharded)
      : group_(std::move(group)), devices_(std::move(devices)) {
    averages_ = std::ranges::all_of(
        devices_, [this](const auto& device) { return can_average(*group_, device.type()); });
    if (sharded && !devices_.empty()) find_operations();
  }

  std::unique_ptr<UnitTransfer> all_reduce(std::size_t unit, LentSpan data, int) override {
    return std::make_unique<C10dTransfer>(all_reduce(tensor_over(data, devices_[unit])));
  }

  std::unique_ptr<UnitTransfer> reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                               int) override {
    auto input = tensor_over(data, devices_[unit]);
    auto output = tensor_over(shard, devices_[unit]);
    if (has_reduce_scatter_) return std::make_unique<C10dTransfer>(reduce_scatter(input, output));
    return std::make_unique<C10dTransfer>(all_reduce(input), [this, input, output] {
      const auto part = output.numel();
      output.copy_(input.narrow(0, part * group_->getRank(), part));
    });
  }

  std::unique_ptr<UnitTransfer> all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                           int) override {
    auto input = tensor_over(shard, devices_[unit]);
    auto output = tensor_over(data, devices_[unit]);
    // Not every backend supports an in-place all-gather.
    if (overlap(input, output)) input = input.clone();
    if (has_flat_gather_)
      return std::make_unique<C10dTransfer>(group_->all_gather_single(output, input));
    std::vector<std::vector<torch::Tensor>> outputs{output.chunk(group_->getSize())};
    std::vector<torch::Tensor> inputs{input};
    return std::make_unique<C10dTransfer>(group_->allgather(outputs, inputs));
  }

  ExchangeTraits traits() const override {
    return {.order = OperationOrder::all, .averages = averages_};
  }
  std::string describe() const override { return "gradients are sent uncompressed"; }

 private:
  void find_operations() {
    const auto options = torch::TensorOptions(torch::kFloat32).device(devices_.front());
    auto whole = torch::zeros({group_->getSize()}, options);
    auto part = torch::zeros({1}, options);
    has_reduce_scatter_ = has([&] { return reduce_scatter(whole, part); });
    has_flat_gather_ = has([&] { return group_->all_gather_single(whole, part); });
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
    return group_->reduce_scatter_single(output, input, options);
  }

  ProcessGroup group_;
  std::vector<c10::Device> devices_;
  bool averages_ = false;
  bool has_reduce_scatter_ = false;
  bool has_flat_gather_ = false;
};

}  // namespace

std::unique_ptr<Exchange> group_exchange(ProcessGroup group, std::vector<c10::Device> devices,
                                         bool sharded) {
  return std::make_unique<GroupExchange>(std::move(group), std::move(devices), sharded);
}

}  // namespace gradwire
