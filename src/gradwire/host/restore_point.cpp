#include "gradwire/host/restore_point.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include "gradwire/base/crc32c.h"

namespace gradwire {
namespace {

at::Generator default_generator(const at::Device& device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator()
                         : at::globalContext().defaultGenerator(device);
}

}  // namespace

std::uint32_t random_checksum() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  const auto* const bytes = static_cast<const std::byte*>(state.data_ptr());
  return crc32c({bytes, state.nbytes()});
}

RestorePoint::RestorePoint(std::vector<NamedTensor> buffers,
                           const std::vector<NamedTensor>& parameters)
    : buffers_(std::move(buffers)) {
  std::vector<at::Device> devices = {at::kCPU};
  for (const auto* tensors : {&std::as_const(buffers_), &parameters}) {
    for (const auto& [name, tensor] : *tensors) {
      if (std::ranges::find(devices, tensor.device()) == devices.end())
        devices.push_back(tensor.device());
    }
  }
  for (const auto& device : devices) random_.push_back({default_generator(device), {}});
  keep();
}

void RestorePoint::keep() {
  copies_.clear();
  for (const auto& [name, tensor] : buffers_) copies_.push_back(tensor.detach().clone());
  for (auto& [generator, state] : random_) {
    const std::lock_guard lock(generator.mutex());
    state = generator.get_state();
  }
}

void RestorePoint::restore() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].tensor.copy_(copies_[i]);
  for (auto& [generator, state] : random_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

}  // namespace gradwire
