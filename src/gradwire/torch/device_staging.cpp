#include "gradwire/torch/device_staging.h"

#include <algorithm>
#include <iterator>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/releases.h"
#include "gradwire/torch/tensor_work.h"

namespace gradwire {
namespace {

using Guard = c10::impl::VirtualGuardImpl;

at::Device device_of(const StagedOperation& operation) {
  for (const StagedPart& part : operation.parts) {
    if (!part.inputs.empty()) return part.inputs.front().device();
    if (!part.outputs.empty()) return part.outputs.front().device();
  }
  refuse("an operation on a device has no tensors");
}

at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(),
                   tensor.options().device(at::kCPU).pinned_memory(true).requires_grad(false));
}

/// Keeps the allocator from reusing the tensor's memory before the stream has reached this point.
void keep_for(const c10::Stream& stream, const at::Tensor& tensor) {
  Guard(stream.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

/// Columns of a segment of about `bytes` bytes, in whole cache lines for every type.
std::int64_t columns_of_a_segment(const at::Tensor& tensor, std::int64_t rows, std::size_t bytes) {
  constexpr std::int64_t line = 64;
  const auto row = static_cast<std::int64_t>(bytes / tensor.element_size()) / rows;
  return std::max(row / line * line, line);
}

at::Tensor as_rows(const at::Tensor& tensor, int rows) {
  return rows == 1 ? tensor.view({-1}) : tensor.view({rows, -1});
}

}  // namespace

std::vector<StagedPart> cut(const at::Tensor& input, int input_rows, const at::Tensor& output,
                            int output_rows, std::size_t segment_bytes) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto list = [](const at::Tensor& tensor) {
    return tensor.defined() ? TensorList{tensor} : TensorList{};
  };
  const std::vector<StagedPart> whole{{list(input), list(output)}};
  const at::Tensor& any = input.defined() ? input : output;
  const std::int64_t columns = any.numel() / (input.defined() ? input_rows : output_rows);
  const auto matches = [&](const at::Tensor& tensor, int rows) {
    return !tensor.defined() || tensor.numel() == columns * rows;
  };
  const auto width = columns_of_a_segment(any, std::max(input_rows, output_rows), segment_bytes);
  if (columns <= width || !matches(input, input_rows) || !matches(output, output_rows)) {
    return whole;
  }
  std::vector<StagedPart> parts;
  for (std::int64_t begin = 0; begin < columns; begin += width) {
    const std::int64_t count = std::min(width, columns - begin);
    StagedPart& part = parts.emplace_back();
    if (input.defined()) part.inputs = {as_rows(input, input_rows).narrow(-1, begin, count)};
    if (output.is_same(input)) {
      part.outputs = part.inputs;
    } else if (output.defined()) {
      part.outputs = {as_rows(output, output_rows).narrow(-1, begin, count)};
    }
  }
  return parts;
}

std::vector<StagedPart> cut_alike(const TensorList& inputs, const TensorList& outputs, int rows,
                                  std::size_t segment_bytes) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const TensorList all = joined(inputs, outputs);
  const std::int64_t columns = all.front().numel();
  const auto width = columns_of_a_segment(all.front(), rows, segment_bytes);
  if (columns <= width || !all_equal(all)) return {{inputs, outputs}};
  std::vector<StagedPart> parts;
  for (std::int64_t begin = 0; begin < columns; begin += width) {
    const auto segment = [&](const at::Tensor& tensor) {
      return tensor.view({-1}).narrow(0, begin, std::min(width, columns - begin));
    };
    StagedPart& part = parts.emplace_back();
    std::ranges::transform(inputs, std::back_inserter(part.inputs), segment);
    std::ranges::transform(outputs, std::back_inserter(part.outputs), segment);
  }
  return parts;
}

StagedWork::StagedWork(Rank rank, std::uint64_t number, StagedOperation operation, c10::Stream back,
                       std::shared_ptr<CompletionThreads> threads)
    : c10d::Work(rank, operation.type),
      operation_(std::move(operation)),
      back_(back),
      number_(number),
      threads_(std::move(threads)),
      ready_(back.device_type()),
      copied_(back.device_type()),
      parts_left_(operation_.parts.size()) {}

void StagedWork::copy_to_host(const c10::Stream& callers, const c10::Stream& stream) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  ready_.record(callers);
  ready_.block(stream);
  const c10::StreamGuard current(stream);
  for (const StagedPart& part : operation_.parts) {
    HostPart& host = host_.emplace_back(HostPart{{}, {}, c10::Event(stream.device_type()), {}});
    for (const at::Tensor& tensor : part.inputs) {
      host.inputs.push_back(pinned_like(tensor));
      host.inputs.back().copy_(tensor, /*non_blocking=*/true);
      keep_for(stream, tensor);
    }
    if (!part.inputs.empty()) host.arrived.record(stream);
    for (const at::Tensor& tensor : part.outputs) {
      const auto same = std::ranges::find_if(
          part.inputs, [&](const at::Tensor& input) { return input.is_same(tensor); });
      host.outputs.push_back(
          same == part.inputs.end()
              ? pinned_like(tensor)
              : host.inputs[static_cast<std::size_t>(same - part.inputs.begin())]);
    }
  }
}

void StagedWork::copy_back(std::size_t part) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::StreamGuard current(back_);
  ready_.block(back_);  // Do not overwrite memory that was still in use when the operation began.
  const TensorList& outputs = operation_.parts[part].outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].copy_(host_[part].outputs[i], /*non_blocking=*/true);
    keep_for(back_, outputs[i]);
  }
}

void StagedWork::post(const Self& self, std::size_t part) {
  HostPart& host = self->host_[part];
  try {
    host.arrived.synchronize();
    const auto work = self->operation_.post(host.inputs, host.outputs);
    {
      const std::lock_guard lock(self->progress_);
      host.work = work;
    }
    self->posted_.notify_all();
    work->getFuture()->addCallback(
        [held = self, part,
         state = c10::ThreadLocalDebugInfo::current()](c10::ivalue::Future& future) mutable {
          const c10::DebugInfoGuard as_here(state);
          part_done(held, part, future.hasError() ? future.exception_ptr() : nullptr);
          held.reset();
        },
        /*uses_future=*/false);
  } catch (const Exception&) {  // Rejected or failed on every rank alike.
    part_done(self, part, std::current_exception());
  } catch (const std::exception& error) {
    self->report_local_failure(error);
    part_done(self, part, std::current_exception());
  }
}

/// Other ranks wait for this rank's part, and its lane's sequence number is one behind theirs.
void StagedWork::report_local_failure(const std::exception& error) {
  if (!operation_.on_local_failure) return;
  operation_.on_local_failure(
      fmt::format("rank {} could not move {} between its device and host: {}", rank_,
                  c10d::opTypeToString(opType_), error.what()));
}

void StagedWork::part_done(const Self& self, std::size_t part, std::exception_ptr error) {
  {
    const std::lock_guard lock(self->progress_);
    try {
      if (!error) self->copy_back(part);
      if (self->parts_left_ == 1) self->copied_.record(self->back_);
    } catch (const std::exception& failed) {
      error = std::current_exception();
      self->report_local_failure(failed);
    }
    if (error && !self->error_) self->error_ = error;
    if (error) self->posted_.notify_all();
    if (--self->parts_left_ > 0) return;
  }
  complete(self);
}

/// Waits until a part has been posted. Returns null if the operation has failed.
c10::intrusive_ptr<c10d::Work> StagedWork::posted(std::size_t part) {
  std::unique_lock lock(progress_);
  posted_.wait(lock, [&] { return host_[part].work || error_; });
  return error_ ? nullptr : host_[part].work;
}

/// Waiting for the parts drives the network, which is quicker than to be woken by its thread.
bool StagedWork::wait(std::chrono::milliseconds timeout) {
  for (std::size_t part = 0; timeout == kNoTimeout && part < host_.size(); ++part) {
    const auto work = posted(part);
    if (!work) break;
    try {
      work->wait();
    } catch (const std::exception&) {
      break;  // Reported below.
    }
  }
  return c10d::Work::wait(timeout);
}

void StagedWork::complete(const Self& self) {
  // Release the tensors before completion is visible: the last owner, which frees them, should be a
  // user's thread, as frees on other threads are hidden from profilers.
  for (StagedPart& part : self->operation_.parts) part = {};
  self->finish(self->error_);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(self->progress_);
    self->done_ = true;
    future = self->future_;
  }
  // On another thread: callbacks may wait for operations that this thread has yet to post.
  if (future) self->threads_->run(with_thread_state([self, future] { self->mark(*future); }));
  self->operation_.in_flight_token.reset();
}

void StagedWork::mark(c10::ivalue::Future& future) {
  if (error_) {
    future.setError(error_);
    return;
  }
  // The future makes its users wait for the stream that is current here.
  const auto stream = Guard(back_.device_type()).getStreamFromGlobalPool(back_.device());
  copied_.block(stream);
  const c10::StreamGuard current(stream);
  future.markCompleted(c10::IValue(operation_.outputs));
}

void StagedWork::synchronize() {
  copied_.block(Guard(back_.device_type()).getStream(back_.device()));
}

int StagedWork::sourceRank() const {
  const auto& work = host_.front().work;
  return work ? work->sourceRank() : -1;
}

c10::intrusive_ptr<c10::ivalue::Future> StagedWork::getFuture() {
  {
    const std::lock_guard lock(progress_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(),
                                                       std::vector<at::Device>{back_.device()});
    if (!done_) return future_;
  }
  mark(*future_);
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> StagedWork::getFutureResult() {
  return getFuture()->then(
      [](c10::ivalue::Future& future) {
        const auto result =
            future.hasError() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
        return c10::IValue(static_cast<std::uint8_t>(result));
      },
      c10::AnyEnumType::get());
}

DeviceStaging::DeviceStaging() : callbacks_(std::make_shared<CompletionThreads>()) {}

DeviceStaging::Streams DeviceStaging::streams_of(at::Device device) {
  const std::lock_guard lock(mutex_);
  if (const auto found = streams_.find(device.index()); found != streams_.end()) {
    return found->second;
  }
  const Guard guard(device.type());
  const Streams made{guard.getStreamFromGlobalPool(device), guard.getStreamFromGlobalPool(device)};
  return streams_.emplace(device.index(), made).first->second;
}

c10::intrusive_ptr<StagedWork> DeviceStaging::run(Rank rank, std::uint64_t number,
                                                  StagedOperation operation) {
  const at::Device device = device_of(operation);
  const Guard guard(device.type());
  const c10::Stream callers = guard.getStream(device);
  if (is_capturing(guard, callers)) {
    throw Exception(ErrorKind::unsupported,
                    fmt::format("rank {}: network operations cannot be captured in a graph of {}; "
                                "run them outside the capture",
                                rank, device.str()));
  }
  const Streams streams = streams_of(device);
  auto work = c10::make_intrusive<StagedWork>(rank, number, std::move(operation), streams.to_device,
                                              callbacks_);
  work->copy_to_host(callers, streams.to_host);
  poster_.run(with_thread_state([work] {
    for (std::size_t part = 0; part < work->host_.size(); ++part) StagedWork::post(work, part);
  }));
  return work;
}

void DeviceStaging::synchronize() {
  const std::lock_guard lock(mutex_);
  for (const auto& [index, streams] : streams_) {
    const at::Device device = streams.to_device.device();
    c10::Event copied(device.type());
    copied.record(streams.to_device);
    copied.block(Guard(device.type()).getStream(device));
  }
}

void DeviceStaging::finish_posting() {
  poster_.close();
}

void DeviceStaging::close() {
  finish_posting();
  callbacks_->close();
}

}  // namespace gradwire
