// A StagedProcessGroup's operations that move elements without changing them.
#include "gradwire/torch/staged_process_group.h"

namespace gradwire {

using WorkPointer = ProcessGroupGradwire::WorkPointer;
using Base = ProcessGroupGradwire;

WorkPointer StagedProcessGroup::broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) {
  if (!on_device(tensors, "broadcast")) return Base::broadcast(tensors, opts);
  only(tensors, name("broadcast", "tensors"));
  const bool root = rank_ == opts.rootRank;
  const TensorList none{at::Tensor()};
  return stage(c10d::OpType::BROADCAST,
               cut_pairs(root ? tensors : none, 1, root ? none : tensors, 1), tensors,
               [opts, root](Base& host, TensorList& in, TensorList& out) {
                 return host.broadcast(root ? in : out, opts);
               });
}

WorkPointer StagedProcessGroup::allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                                          const c10d::AllgatherOptions& opts) {
  if (!on_device(joined(outputs), inputs, "all_gather")) {
    return Base::allgather(outputs, inputs, opts);
  }
  return stage(c10d::OpType::ALLGATHER, cut_lists(inputs, joined(outputs)), joined(outputs),
               [opts, like = outputs](Base& host, TensorList& in, TensorList& out) {
                 auto lists = split_as(like, out);
                 return host.allgather(lists, in, opts);
               });
}

WorkPointer StagedProcessGroup::allgather_coalesced(std::vector<TensorList>& outputs,
                                                    TensorList& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  if (!on_device(joined(outputs), inputs, "all_gather_coalesced")) {
    return Base::allgather_coalesced(outputs, inputs, opts);
  }
  return stage(c10d::OpType::ALLGATHER_COALESCED, {{inputs, joined(outputs)}}, joined(outputs),
               [opts, like = outputs](Base& host, TensorList& in, TensorList& out) {
                 auto lists = split_as(like, out);
                 return host.allgather_coalesced(lists, in, opts);
               });
}

WorkPointer StagedProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& opts) {
  if (!on_device({output, input}, "all_gather")) return Base::_allgather_base(output, input, opts);
  return stage(c10d::OpType::_ALLGATHER_BASE, cut_pairs({input}, 1, {output}, size_), {output},
               [opts](Base& host, TensorList& in, TensorList& out) {
                 return host._allgather_base(out.front(), in.front(), opts);
               });
}

WorkPointer StagedProcessGroup::allgather_into_tensor_coalesced(
    TensorList& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) {
  if (!on_device(outputs, inputs, "all_gather_into_tensor_coalesced")) {
    return Base::allgather_into_tensor_coalesced(outputs, inputs, opts);
  }
  return stage(c10d::OpType::COALESCED, cut_pairs(inputs, 1, outputs, size_), outputs,
               [opts](Base& host, TensorList& in, TensorList& out) {
                 return host.allgather_into_tensor_coalesced(out, in, opts);
               });
}

WorkPointer StagedProcessGroup::gather(std::vector<TensorList>& outputs, TensorList& inputs,
                                       const c10d::GatherOptions& opts) {
  if (!on_device(joined(outputs), inputs, "gather")) return Base::gather(outputs, inputs, opts);
  return stage(c10d::OpType::GATHER, cut_lists(inputs, joined(outputs)), joined(outputs),
               [opts, like = outputs](Base& host, TensorList& in, TensorList& out) {
                 auto lists = split_as(like, out);
                 return host.gather(lists, in, opts);
               });
}

WorkPointer StagedProcessGroup::scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                                        const c10d::ScatterOptions& opts) {
  if (!on_device(joined(inputs), outputs, "scatter")) return Base::scatter(outputs, inputs, opts);
  return stage(c10d::OpType::SCATTER, cut_lists(joined(inputs), outputs), outputs,
               [opts, like = inputs](Base& host, TensorList& in, TensorList& out) {
                 auto lists = split_as(like, in);
                 return host.scatter(out, lists, opts);
               });
}

WorkPointer StagedProcessGroup::alltoall(TensorList& outputs, TensorList& inputs,
                                         const c10d::AllToAllOptions& opts) {
  if (!on_device(outputs, inputs, "all_to_all")) return Base::alltoall(outputs, inputs, opts);
  return stage(
      c10d::OpType::ALLTOALL, {{inputs, outputs}}, outputs,
      [opts](Base& host, TensorList& in, TensorList& out) { return host.alltoall(out, in, opts); });
}

WorkPointer StagedProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<std::int64_t>& output_splits,
                                              std::vector<std::int64_t>& input_splits,
                                              const c10d::AllToAllOptions& opts) {
  if (!on_device({output, input}, "all_to_all")) {
    return Base::alltoall_base(output, input, output_splits, input_splits, opts);
  }
  const auto shared = [&](const at::Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) % size_ == 0;
  };
  const bool equal =
      output_splits.empty() && input_splits.empty() && shared(output) && shared(input);
  auto parts = equal ? cut_pairs({input}, size_, {output}, size_)
                     : std::vector<StagedPart>{{{input}, {output}}};
  return stage(
      c10d::OpType::ALLTOALL_BASE, std::move(parts), {output},
      [opts, output_splits, input_splits](Base& host, TensorList& in, TensorList& out) mutable {
        return host.alltoall_base(out.front(), in.front(), output_splits, input_splits, opts);
      });
}

// Messages are not cut into segments: the peer may be on a CPU.

WorkPointer StagedProcessGroup::send(TensorList& tensors, int to, int tag) {
  if (!on_device(tensors, "send")) return Base::send(tensors, to, tag);
  return stage(c10d::OpType::SEND, {{tensors, {}}}, {},
               [=](Base& host, TensorList& in, TensorList&) { return host.send(in, to, tag); });
}

WorkPointer StagedProcessGroup::recv(TensorList& tensors, int from, int tag) {
  if (!on_device(tensors, "recv")) return Base::recv(tensors, from, tag);
  return stage(c10d::OpType::RECV, {{{}, tensors}}, tensors,
               [=](Base& host, TensorList&, TensorList& out) { return host.recv(out, from, tag); });
}

WorkPointer StagedProcessGroup::recvAnysource(TensorList& tensors, int tag) {
  if (!on_device(tensors, "recv_any_source")) return Base::recvAnysource(tensors, tag);
  return stage(
      c10d::OpType::RECVANYSOURCE, {{{}, tensors}}, tensors,
      [=](Base& host, TensorList&, TensorList& out) { return host.recvAnysource(out, tag); });
}

}  // namespace gradwire
