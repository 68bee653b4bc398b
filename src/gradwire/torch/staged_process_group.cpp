#include "gradwire/torch/staged_process_group.h"

#include <algorithm>
#include <chrono>

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/releases.h"

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

/// Returns true if an operation must be staged; throws if its tensors are on several devices.
bool StagedProcessGroup::on_device(const TensorList& tensors, const char* operation) const {
  const auto found = std::ranges::find_if(tensors, [](const at::Tensor& tensor) {
    return tensor.defined() && at::accelerator::isAccelerator(tensor.device().type());
  });
  if (found == tensors.end()) return false;
  for (const at::Tensor& tensor : tensors) {
    check_on(found->device(), tensor, name(operation, "tensors"));
  }
  return true;
}

bool StagedProcessGroup::on_device(const TensorList& some, const TensorList& others,
                                   const char* operation) const {
  return on_device(joined(some, others), operation);
}

std::vector<StagedPart> StagedProcessGroup::cut_pairs(const TensorList& inputs, int input_rows,
                                                      const TensorList& outputs,
                                                      int output_rows) const {
  // The operation reports the error.
  if (inputs.size() != outputs.size()) return {{inputs, outputs}};
  std::vector<StagedPart> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (StagedPart& part : cut(inputs[i], input_rows, outputs[i], output_rows, segment_bytes_)) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::vector<StagedPart> StagedProcessGroup::cut_lists(const TensorList& inputs,
                                                      const TensorList& outputs) const {
  return cut_alike(inputs, outputs, size_, segment_bytes_);
}

WorkPointer StagedProcessGroup::stage(c10d::OpType type, std::vector<StagedPart> parts,
                                      TensorList outputs, Post post) {
  communicator();  // Throws after shutdown().
  StagedOperation operation{.type = type, .parts = std::move(parts), .outputs = std::move(outputs)};
  operation.post = [host = host_, post = std::move(post)](TensorList& inputs, TensorList& results) {
    return post(*host, inputs, results);
  };
  operation.on_local_failure = [host = host_](const std::string& why) {
    host->abort_with_reason(why);
  };
  if (!c10d::isP2POp(type)) operation.in_flight_token = in_flight_.begin();
  WorkPointer work = staging_.run(rank_, next_number(), std::move(operation));
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

// Reductions.

WorkPointer StagedProcessGroup::allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].is_cpu()) {
    communicator();  // Throws after shutdown().
    WorkPointer work = sparse_.run(tensors[0], next_number(), opts, in_flight_.begin());
    report_staged(work);
    collect(work);
    return work;
  }
  if (!on_device(tensors, "all_reduce")) return Base::allreduce(tensors, opts);
  only(tensors, name("all_reduce", "tensors"));
  return stage(
      c10d::OpType::ALLREDUCE, cut_pairs(tensors, 1, tensors, 1), tensors,
      [opts](Base& host, TensorList& data, TensorList&) { return host.allreduce(data, opts); });
}

WorkPointer StagedProcessGroup::allreduce_coalesced(TensorList& tensors,
                                                    const c10d::AllreduceCoalescedOptions& opts) {
  if (!on_device(tensors, "all_reduce_coalesced")) return Base::allreduce_coalesced(tensors, opts);
  return stage(c10d::OpType::ALLREDUCE_COALESCED, cut_pairs(tensors, 1, tensors, 1), tensors,
               [opts](Base& host, TensorList& data, TensorList&) {
                 return host.allreduce_coalesced(data, opts);
               });
}

WorkPointer StagedProcessGroup::reduce(TensorList& tensors, const c10d::ReduceOptions& opts) {
  if (!on_device(tensors, "reduce")) return Base::reduce(tensors, opts);
  only(tensors, name("reduce", "tensors"));
  const TensorList outputs = rank_ == opts.rootRank ? tensors : TensorList{at::Tensor()};
  return stage(
      c10d::OpType::REDUCE, cut_pairs(tensors, 1, outputs, 1), tensors,
      [opts](Base& host, TensorList& data, TensorList&) { return host.reduce(data, opts); });
}

WorkPointer StagedProcessGroup::reduce_scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                                               const c10d::ReduceScatterOptions& opts) {
  if (!on_device(joined(inputs), outputs, "reduce_scatter")) {
    return Base::reduce_scatter(outputs, inputs, opts);
  }
  return stage(c10d::OpType::REDUCE_SCATTER, cut_lists(joined(inputs), outputs), outputs,
               [opts, like = inputs](Base& host, TensorList& in, TensorList& out) {
                 auto lists = split_as(like, in);
                 return host.reduce_scatter(out, lists, opts);
               });
}

WorkPointer StagedProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& opts) {
  if (!on_device({output, input}, "reduce_scatter")) {
    return Base::_reduce_scatter_base(output, input, opts);
  }
  return stage(c10d::OpType::_REDUCE_SCATTER_BASE, cut_pairs({input}, size_, {output}, 1), {output},
               [opts](Base& host, TensorList& in, TensorList& out) {
                 return host._reduce_scatter_base(out.front(), in.front(), opts);
               });
}

WorkPointer StagedProcessGroup::reduce_scatter_tensor_coalesced(
    TensorList& outputs, TensorList& inputs, const c10d::ReduceScatterOptions& opts) {
  if (!on_device(outputs, inputs, "reduce_scatter")) {
    return Base::reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  }
  return stage(coalesced_reduce_scatter_type(), cut_pairs(inputs, size_, outputs, 1), outputs,
               [opts](Base& host, TensorList& in, TensorList& out) {
                 return host.reduce_scatter_tensor_coalesced(out, in, opts);
               });
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
