#include "gradwire/recipe/run_devices.h"

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/error.h"

namespace gradwire::recipe {
namespace {

torch::Device device_named(const std::string& name) {
  const auto lacks = [&name](const std::string& what) {
    return Exception(ErrorKind::unsupported, fmt::format("devices: {}: {}", name, what));
  };
  const auto accelerator = at::accelerator::getAccelerator();
  try {
    const torch::Device device(name);
    if (device.is_cpu()) return device;
    if (!accelerator || device.type() != *accelerator)
      throw lacks("this libtorch has no such devices; use \"cpu\"");
    if (device.index() < at::accelerator::deviceCount()) return device;
  } catch (const c10::Error& error) {
    throw lacks(error.what_without_backtrace());
  }
  throw lacks(fmt::format("this machine has {} of this type", at::accelerator::deviceCount()));
}

}  // namespace

std::vector<torch::Device> devices_of(const TrainConfig& config) {
  if (config.devices.empty()) return {torch::kCPU};
  std::vector<torch::Device> devices;
  for (const std::string& name : config.devices) devices.push_back(device_named(name));
  return devices;
}

std::string devices_text(const TrainConfig& config) {
  if (config.devices.empty()) return "";
  return fmt::format("devices of each process: {}\n", fmt::join(config.devices, ", "));
}

}  // namespace gradwire::recipe
