#include "gradwire/host/hybrid_exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/exchange/communicator_exchange.h"
#include "gradwire/host/torch_exchange.h"
#include "gradwire/torch/c10d_work.h"

namespace gradwire {
namespace {

using exchange::UnitShape;
using Between = HybridCollectives::Between;

HybridCollectives::Wait wait_for_end(Work work) {
  return [work = std::move(work)] { work.wait(); };
}

class HybridExchange final : public exchange::ExchangeDecorator {
 public:
  HybridExchange(c10::intrusive_ptr<HybridProcessGroup> group,
                 std::unique_ptr<exchange::Exchange> between, std::vector<c10::Device> devices,
                 std::optional<Duration> timeout)
      : exchange::ExchangeDecorator(std::move(between)),
        group_(std::move(group)),
        devices_(std::move(devices)) {
    if (timeout) timeout_ = std::chrono::ceil<std::chrono::milliseconds>(*timeout);
  }

  Work all_reduce(std::size_t unit, LentSpan data, int priority) override {
    const Between between = [=, this](const at::Tensor& part, const at::Tensor&) {
      return wait_for_end(inner().all_reduce(unit, lent(part), priority));
    };
    return work_of(hybrid().all_reduce(tensor_over(data, devices_[unit]), mean(), between));
  }

  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override {
    const Between between = [=, this](const at::Tensor& parts, const at::Tensor& own) {
      return wait_for_end(inner().reduce_scatter(unit, lent(parts), lent(own), priority));
    };
    return work_of(hybrid().reduce_scatter(tensor_over(data, devices_[unit]),
                                           tensor_over(shard, devices_[unit]), mean(), between));
  }

  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override {
    const Between between = [=, this](const at::Tensor& own, const at::Tensor& parts) {
      return wait_for_end(inner().all_gather(unit, lent(own), lent(parts), priority));
    };
    return work_of(hybrid().all_gather(tensor_over(shard, devices_[unit]),
                                       tensor_over(data, devices_[unit]), between, timeout_));
  }

  exchange::ExchangeTraits traits() const override {
    exchange::ExchangeTraits traits = inner().traits();
    traits.order = exchange::OperationOrder::all;
    return traits;
  }
  std::string describe() const override {
    return fmt::format("{} between hosts, by {} ranks of each", inner().describe(),
                       hybrid().grid().places());
  }

 private:
  HybridCollectives& hybrid() const { return *group_->hybrid(); }
  HybridCollectives::Reduction mean() const { return {.mean = true, .timeout = timeout_}; }
  LentSpan lent(const at::Tensor& tensor) const {
    return lend_on_device(tensor, {"exchange", "unit", group_->getRank()});
  }

  c10::intrusive_ptr<HybridProcessGroup> group_;
  std::vector<c10::Device> devices_;
  std::chrono::milliseconds timeout_{};
};

/// The units between hosts: of a replicated one its part, of a sharded one all parts of a place.
std::vector<UnitShape> between_hosts(const std::vector<UnitShape>& units, int places) {
  std::vector<UnitShape> parts;
  const auto count = static_cast<std::size_t>(places);
  for (const UnitShape& unit : units) {
    UnitShape& part = parts.emplace_back(unit);
    part.count = (unit.count + count - 1) / count;
    const std::string name = unit.tensors.empty() ? "unit" : unit.tensors.front().name;
    part.tensors = {{.name = name, .columns = part.count}};
  }
  return parts;
}

}  // namespace

std::unique_ptr<exchange::Exchange> hybrid_exchange(std::string_view who,
                                                    c10::intrusive_ptr<HybridProcessGroup> group,
                                                    const std::vector<torch::Tensor>& tensors,
                                                    const std::vector<UnitShape>& units,
                                                    const exchange::ExchangeOptions& options) {
  refuse_codec_of_matrices(options.codec);
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors) devices.push_back(tensor.device());
  auto between =
      group->between()
          ? torch_exchange(who, process_group_of(group->between()), tensors,
                           between_hosts(units, group->hybrid()->grid().places()), options, nullptr)
          : exchange::local_exchange();
  return std::make_unique<HybridExchange>(std::move(group), std::move(between), std::move(devices),
                                          options.timeout);
}

}  // namespace gradwire
