#include "gradwire/torch/staged_process_group.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <tuple>

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire {

using WorkPointer = ProcessGroupGradwire::WorkPointer;
using Base = ProcessGroupGradwire;

namespace {

void check_on(const at::Device& device, const at::Tensor& tensor, const ArgumentName& name) {
  if (!tensor.defined()) refuse(name, "a tensor is undefined");
  if (tensor.device() != device) {
    refuse(name,
           fmt::format(
               "has tensors on {} and on {}; all tensors of an operation must be on one device",
               device.str(), tensor.device().str()));
  }
  if (tensor.layout() != at::kStrided)
    refuse(name, "a tensor is sparse; convert it with to_dense()");
  if (!tensor.is_contiguous()) refuse(name, "a tensor is not contiguous; pass .contiguous()");
  if (tensor.is_conj() || tensor.is_neg()) {
    refuse(name, "a tensor is lazily conjugated or negated; pass .resolve_conj().resolve_neg()");
  }
}

}  // namespace

StagedProcessGroup::StagedProcessGroup(std::shared_ptr<Communicator> communicator,
                                       c10::intrusive_ptr<GroupOptions> options,
                                       std::size_t segment_bytes)
    : Base(communicator, options),
      segment_bytes_(segment_bytes),
      host_(c10::make_intrusive<Base>(communicator, options, communicator->reserve_lanes(1))),
      sparse_(c10::make_intrusive<Base>(communicator, options, communicator->reserve_lanes(1))) {}

StagedProcessGroup::~StagedProcessGroup() {
  StagedProcessGroup::shutdown();
}

bool StagedProcessGroup::is_on_device(const TensorList& some, const TensorList& others,
                                      const char* operation) const {
  const auto on_accelerator = [](const at::Tensor& tensor) {
    return tensor.defined() && at::accelerator::isAccelerator(tensor.device().type());
  };
  const auto find = [&](const TensorList& list) {
    return std::ranges::find_if(list, on_accelerator);
  };
  const auto first = find(some), second = find(others);
  if (first == some.end() && second == others.end()) return false;
  const at::Device device = first != some.end() ? first->device() : second->device();
  for (const TensorList* list : {&some, &others}) {
    for (const at::Tensor& tensor : *list) check_on(device, tensor, name(operation, "tensors"));
  }
  return true;
}

/// All ranks must compute the same number of parts.
std::vector<StagedPart> StagedProcessGroup::parts_of(const DeviceOperation& operation) const {
  const auto& [inputs, outputs] = std::tie(operation.inputs, operation.outputs);
  if (operation.cut == Cut::lists) return cut_alike(inputs, outputs, size_, segment_bytes_);
  // The operation reports lists of different lengths.
  if (operation.cut == Cut::none || inputs.size() != outputs.size()) return {{inputs, outputs}};
  std::vector<StagedPart> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::ranges::move(
        cut(inputs[i], operation.input_rows, outputs[i], operation.output_rows, segment_bytes_),
        std::back_inserter(parts));
  }
  return parts;
}

WorkPointer StagedProcessGroup::stage(DeviceOperation operation) {
  communicator();  // Throws after shutdown().
  StagedOperation staged{.type = operation.type,
                         .parts = parts_of(operation),
                         .outputs = std::move(operation.results)};
  staged.post = [host = host_, post = std::move(operation.post)](TensorList& inputs,
                                                                 TensorList& results) {
    return post(*host, inputs, results);
  };
  staged.on_local_failure = [host = host_](const std::string& why) {
    host->abort_with_reason(why);
  };
  if (!c10d::isP2POp(operation.type)) staged.in_flight_token = in_flight_.begin();
  WorkPointer work = staging_.run(rank_, next_number(), std::move(staged));
  report_staged(work);
  collect(work);
  return work;
}

WorkPointer StagedProcessGroup::barrier(const c10d::BarrierOptions& opts) {
  const auto timeout = options_with(opts.timeout).timeout.value_or(Duration::zero());
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(timeout);
  if (!in_flight_.wait(limit)) {
    throw Exception(ErrorKind::timeout,
                    fmt::format("rank {}: barrier: earlier operations on accelerator or sparse "
                                "tensors are still in flight after {} ms",
                                rank_, limit.count()));
  }
  staging_.synchronize();
  return Base::barrier(opts);
}

WorkPointer StagedProcessGroup::allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) {
  const bool is_sparse = tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].is_cpu();
  if (!is_sparse) return Base::allreduce(tensors, opts);
  communicator();  // Throws after shutdown().
  WorkPointer work = sparse_.run(tensors[0], next_number(), opts, in_flight_.begin());
  report_staged(work);
  collect(work);
  return work;
}

// Group management.

void StagedProcessGroup::setTimeout(std::chrono::milliseconds timeout) {
  Base::setTimeout(timeout);
  host_->setTimeout(timeout);
  sparse_.group().setTimeout(timeout);
}

void StagedProcessGroup::shutdown() {
  // Order: post all staged parts, complete the operations, then run their callbacks.
  staging_.finish_posting();
  sparse_.finish();
  Base::release();
  host_->release();
  sparse_.group().release();
  Base::close_callbacks();
  host_->close_callbacks();
  sparse_.group().close_callbacks();
  staging_.close();
  sparse_.close();
}

c10::intrusive_ptr<c10d::Backend> StagedProcessGroup::make_split(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<GroupOptions> options) const {
  return c10::make_intrusive<StagedProcessGroup>(std::move(communicator), std::move(options),
                                                 segment_bytes_);
}

}  // namespace gradwire
