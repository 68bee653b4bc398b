#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>

/// A device for tests of what treats devices alike: PyTorch's PrivateUse1 ("queue"), its memory
/// that of the host, its streams threads that do one thing after the other, its events what such
/// a thread waits for. So copies happen when their stream comes to them, and no sooner. Operations
/// compute on copies in the host's memory, with the CPU's kernels. PyTorch's tables are of the
/// process, hence so is this device.
namespace gradwire::test {

/// What a stream copied; `pinned`: the host's side was pinned memory.
struct DeviceCopy {
  int device = 0;
  bool to_device = false;
  std::size_t bytes = 0;
  bool pinned = false;
  bool asynchronous = false;
};

/// Makes the device known to PyTorch. Any number of times.
void install_queue_device();

inline at::Device queue_device(int index) {
  return {at::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

/// Makes it the calling thread's current device and returns a copy on it.
at::Tensor to_queue_device(const at::Tensor& tensor, int index);

/// Has a tensor of the host itself be one on that device, as Module::to() does for the devices that
/// libtorch has in its lists. Before it is used in any graph.
void move_to_queue_device(const at::Tensor& tensor, int index);

/// What the tensor is on the host, once the current stream has come to the copy.
at::Tensor to_host(const at::Tensor& tensor);

/// The same memory as a tensor of the host, for what compute() does.
at::Tensor memory_of(const at::Tensor& tensor);

/// Queues something on the calling thread's current stream of its current device.
void compute(std::function<void()> action);

/// What streams do before each copy, from now on: on their threads.
void before_copies(std::function<void(const DeviceCopy&)> action);

/// Whether streams say that they are being captured; whether there is no pinned memory left.
void set_capturing(bool capturing);
void set_out_of_memory(bool out);

}  // namespace gradwire::test
