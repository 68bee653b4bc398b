#include "gradwire/torch/thread_work.h"

#include <utility>

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gradwire {
namespace {

using DeviceGuard = c10::impl::VirtualGuardImpl;

std::vector<at::Device> accelerators_of(const std::vector<at::Tensor>& tensors) {
  if (tensors.front().is_cpu()) return {};
  return {tensors.front().device()};
}

}  // namespace

ThreadWork::ThreadWork(Rank rank, c10d::OpType type, std::uint64_t number,
                       std::vector<at::Tensor> outputs,
                       std::shared_ptr<CompletionThreads> callbacks)
    : c10d::Work(rank, type),
      outputs_(std::move(outputs)),
      number_(number),
      callbacks_(std::move(callbacks)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(),
                                                       accelerators_of(outputs_))) {
  if (!outputs_.front().is_cpu()) available_.emplace(outputs_.front().device().type());
}

void ThreadWork::synchronize() {
  if (!available_) return;
  const at::Device device = outputs_.front().device();
  available_->block(DeviceGuard(device.type()).getStream(device));
}

void ThreadWork::complete(const std::exception_ptr& error) {
  std::optional<c10::Stream> stream;
  if (available_) {
    const at::Device device = outputs_.front().device();
    stream = DeviceGuard(device.type()).getStream(device);
    available_->record(*stream);
  }
  finish(error);
  callbacks_->run([error, stream, future = future_, outputs = outputs_] {
    if (error) return future->setError(error);
    // The future makes its users wait for the stream that is current here.
    std::optional<c10::StreamGuard> current;
    if (stream) current.emplace(*stream);
    future->markCompleted(outputs);
  });
}

}  // namespace gradwire
