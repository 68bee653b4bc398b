// Messages between two ranks, and barriers.
#include "gradwire/torch/contiguous_copies.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_lists.h"

namespace gradwire {

using WorkPointer = ProcessGroupGradwire::WorkPointer;

WorkPointer ProcessGroupGradwire::send(TensorList& tensors, int to, int tag) {
  const auto argument = name("send", "tensors[0]");
  ContiguousCopies copies;
  const auto span = lend_bytes(copies.read(only(tensors, argument)), argument);
  return track({.type = c10d::OpType::SEND,
                .parts = {communicator()->send(span, to, tag, options_with({}))}});
}

WorkPointer ProcessGroupGradwire::recv(TensorList& tensors, int from, int tag) {
  const auto argument = name("recv", "tensors[0]");
  ContiguousCopies copies;
  TensorList dense = copies.written(tensors, argument);
  if (copies.any()) return copies.copy_back(recv(dense, from, tag), tensors);
  const auto span = lend_bytes(only(tensors, argument), argument);
  return track({.type = c10d::OpType::RECV,
                .parts = {communicator()->recv(span, from, tag, options_with({}))},
                .outputs = tensors});
}

WorkPointer ProcessGroupGradwire::recvAnysource(TensorList& tensors, int tag) {
  const auto argument = name("recv_any_source", "tensors[0]");
  ContiguousCopies copies;
  TensorList dense = copies.written(tensors, argument);
  if (copies.any()) return copies.copy_back(recvAnysource(dense, tag), tensors);
  const auto span = lend_bytes(only(tensors, argument), argument);
  return track({.type = c10d::OpType::RECVANYSOURCE,
                .parts = {communicator()->recv_any(span, tag, options_with({}))},
                .outputs = tensors});
}

WorkPointer ProcessGroupGradwire::barrier(const c10d::BarrierOptions& opts) {
  return track({.type = c10d::OpType::BARRIER,
                .parts = {communicator()->barrier(options_with(opts.timeout))},
                .finish = [unmoved = unmoved_] { unmoved->move(); }});
}

/// Rank 0 receives from every other rank directly, so that it knows all missing ranks, and then
/// replies. Other ranks wait twice the timeout for the reply, as rank 0 may be the last to arrive.
void ProcessGroupGradwire::monitoredBarrier(const c10d::BarrierOptions& opts,
                                            bool /*wait_all_ranks*/) {
  const auto argument = name("monitored_barrier", "none");
  const auto here = torch::zeros({1}, torch::kByte);
  const auto all = torch::zeros({size_}, torch::kByte);
  auto options = options_with(opts.timeout);
  options.algorithm = "direct";
  track({.type = c10d::OpType::BARRIER,
         .parts = {communicator()->gather(lend_bytes(here, argument), lend_bytes(all, argument),
                                          /*root=*/0, options)}})
      ->wait();
  options.algorithm.clear();
  if (rank_ != 0 && options.timeout) *options.timeout *= 2;
  track({.type = c10d::OpType::BARRIER,
         .parts = {communicator()->broadcast(lend_bytes(here, argument), /*root=*/0, options)}})
      ->wait();
  barrier(opts)->wait();  // All ranks are here; also completes what they posted before.
}

}  // namespace gradwire
