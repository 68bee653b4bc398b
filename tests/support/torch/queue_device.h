#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>

/// A device for tests of device-independent code: PyTorch's PrivateUse1 ("queue"). Its memory is
/// the host's, its streams are threads that run one task after the other, and its events are waited
/// for by such threads. So a copy happens only when its stream reaches it. Operations compute on
/// copies in the host's memory, with the CPU's kernels. PyTorch's tables are global to the process,
/// and so is this device.
namespace gradwire::test {

/// A copy by a stream; `pinned`: the host's side was pinned memory.
struct DeviceCopy {
  int device = 0;
  bool to_device = false;
  std::size_t bytes = 0;
  bool pinned = false;
  bool asynchronous = false;
};

/// Registers the device with PyTorch. May be called repeatedly.
void install_queue_device();

inline at::Device queue_device(int index) {
  return {at::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

/// Makes it the calling thread's current device and returns a copy on it.
at::Tensor to_queue_device(const at::Tensor& tensor, int index);

/// Moves a host tensor to that device in place, as Module::to() does for devices known to libtorch.
/// Called before the tensor is used in any graph.
void move_to_queue_device(const at::Tensor& tensor, int index);

/// Returns the tensor's value on the host, after the current stream has reached the copy.
at::Tensor to_host(const at::Tensor& tensor);

/// Returns the same memory as a host tensor, for use in compute().
at::Tensor memory_of(const at::Tensor& tensor);

/// Queues `action` on the calling thread's current stream of its current device.
void compute(std::function<void()> action);

/// Streams call `action` before each copy from here on, on their threads.
void before_copies(std::function<void(const DeviceCopy&)> action);

/// Makes streams report that they are being captured; simulates exhausted pinned memory.
void set_capturing(bool capturing);
void set_out_of_memory(bool out);

}  // namespace gradwire::test
