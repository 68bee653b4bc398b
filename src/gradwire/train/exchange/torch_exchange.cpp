#include "gradwire/train/exchange/torch_exchange.h"

#include <utility>

#include "gradwire/exchange/communicator_exchange.h"
#include "gradwire/exchange/traced_exchange.h"
#include "gradwire/torch/process_group.h"

namespace gradwire {

std::unique_ptr<Exchange> torch_exchange(std::string_view who, const ProcessGroup& group,
                                         const std::vector<torch::Tensor>& tensors,
                                         std::vector<UnitShape> units,
                                         const ExchangeOptions& options, TraceRecorder* trace) {
  if (group->getSize() == 1) return local_exchange();
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors) devices.push_back(tensor.device());
  const auto communicator = communicator_of(*group);
  if (!communicator) {
    refuse_codec_without_communicator(who, options.codec);
    return traced_exchange(group_exchange(group, std::move(devices), options.sharded), trace);
  }
  auto exchange = make_exchange(communicator, std::move(units), options);
  if (one_device_type(who, tensors) != c10::DeviceType::CPU)
    exchange = staged_exchange(communicator->rank(), std::move(exchange), std::move(devices));
  return traced_exchange(std::move(exchange), trace);
}

}  // namespace gradwire
