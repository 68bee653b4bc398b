#include "gradwire/torch/process_group.h"

#include <fmt/format.h>

#include "gradwire/torch/tensor_span.h"
#include "gradwire/torch/tensor_work.h"

namespace gradwire {
namespace {

ReduceOp reduce_op_of(const c10d::ReduceOp& op, const char* operation, Rank rank) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::mean;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    default:
      throw Exception(ErrorKind::unsupported,
                      fmt::format("rank {}: {}: reduction {} is not supported; use SUM, AVG, MIN, "
                                  "MAX or PRODUCT",
                                  rank, operation, static_cast<int>(op.op_)));
  }
}

OperationOptions options_with(std::chrono::milliseconds timeout) {
  OperationOptions options;
  if (timeout > std::chrono::milliseconds::zero()) options.timeout = timeout;
  return options;
}

[[noreturn]] void refuse(Rank rank, const char* operation, const std::string& reason) {
  throw Exception(ErrorKind::invalid_argument,
                  fmt::format("rank {}: {}: {}", rank, operation, reason));
}

/// Lists of tensors travel as one flat tensor: they must all look like `like`, one for each rank.
void check_list(const std::vector<at::Tensor>& list, const at::Tensor& like, int size, Rank rank,
                const char* operation, const char* argument) {
  if (list.size() != static_cast<std::size_t>(size)) {
    refuse(rank, operation,
           fmt::format("'{}' has {} tensors for {} ranks", argument, list.size(), size));
  }
  for (const auto& tensor : list) {
    if (tensor.numel() == like.numel() && tensor.scalar_type() == like.scalar_type()) continue;
    refuse(rank, operation,
           fmt::format("'{}' has a tensor of {} elements of {} beside one of {} elements of {}",
                       argument, tensor.numel(), torch::toString(tensor.scalar_type()),
                       like.numel(), torch::toString(like.scalar_type())));
  }
}

/// `whole` must have exactly `size` times the elements of `part`, of the same type.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, Rank rank,
                 const char* operation) {
  if (whole.numel() == part.numel() * size && whole.scalar_type() == part.scalar_type()) return;
  refuse(rank, operation,
         fmt::format("{} elements of {} are not {} times {} elements of {}", whole.numel(),
                     torch::toString(whole.scalar_type()), size, part.numel(),
                     torch::toString(part.scalar_type())));
}

at::Tensor flat_for(const at::Tensor& part, int size) {
  return at::empty({part.numel() * size}, part.options());
}

}  // namespace

ProcessGroupGradwire::ProcessGroupGradwire(std::shared_ptr<Communicator> communicator)
    : c10d::Backend(communicator->rank(), communicator->size()),
      communicator_(std::move(communicator)) {}

const at::Tensor& ProcessGroupGradwire::only(const std::vector<at::Tensor>& tensors,
                                             const char* operation, const char* argument) const {
  if (tensors.size() == 1) return tensors.front();
  refuse(rank_, operation,
         fmt::format("'{}' must be one tensor, and is {}", argument, tensors.size()));
}

const std::vector<at::Tensor>& ProcessGroupGradwire::only(
    const std::vector<std::vector<at::Tensor>>& lists, const char* operation,
    const char* argument) const {
  if (lists.size() == 1) return lists.front();
  refuse(rank_, operation,
         fmt::format("'{}' must be one list of tensors, and is {}", argument, lists.size()));
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::track(c10d::OpType type,
                                                           std::vector<Work> parts,
                                                           std::vector<at::Tensor> outputs,
                                                           std::function<void()> finish) const {
  return c10::make_intrusive<TensorWork>(rank_, type, std::move(parts), std::move(outputs),
                                         std::move(finish));
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::broadcast(std::vector<at::Tensor>& tensors,
                                                               const c10d::BroadcastOptions& opts) {
  const auto span =
      lend_bytes(only(tensors, "broadcast", "tensors"), {"broadcast", "tensors[0]", rank_});
  return track(c10d::OpType::BROADCAST,
               {communicator_->broadcast(span, static_cast<Rank>(opts.rootRank),
                                         options_with(opts.timeout))},
               tensors);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::allreduce(std::vector<at::Tensor>& tensors,
                                                               const c10d::AllreduceOptions& opts) {
  const auto span =
      lend(only(tensors, "all_reduce", "tensors"), {"all_reduce", "tensors[0]", rank_});
  const auto op = reduce_op_of(opts.reduceOp, "all_reduce", rank_);
  return track(c10d::OpType::ALLREDUCE,
               {communicator_->all_reduce(span, op, options_with(opts.timeout))}, tensors);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const auto op = reduce_op_of(opts.reduceOp, "all_reduce_coalesced", rank_);
  // Everything is checked before anything starts: half a list would leave the ranks out of step.
  std::vector<LentSpan> spans;
  for (const auto& tensor : tensors) {
    const auto argument = fmt::format("tensors[{}]", spans.size());
    spans.push_back(lend(tensor, {"all_reduce_coalesced", argument, rank_}));
  }
  std::vector<Work> parts;
  for (const auto& span : spans) {
    parts.push_back(communicator_->all_reduce(span, op, options_with(opts.timeout)));
  }
  return track(c10d::OpType::ALLREDUCE_COALESCED, std::move(parts), tensors);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& opts) {
  const auto& input = only(inputs, "all_gather", "inputs");
  const auto& list = only(outputs, "all_gather", "outputs");
  const auto source = lend_bytes(input, {"all_gather", "inputs[0]", rank_});
  check_list(list, input, size_, rank_, "all_gather", "outputs");
  auto flat = flat_for(input, size_);
  const auto target = lend_bytes(flat, {"all_gather", "outputs", rank_});
  return track(c10d::OpType::ALLGATHER,
               {communicator_->all_gather(source, target, options_with(opts.timeout))}, list,
               [flat, list] {
                 const at::NoGradGuard no_grad;
                 const auto parts = flat.chunk(static_cast<std::int64_t>(list.size()));
                 for (std::size_t r = 0; r < list.size() && r < parts.size(); ++r) {
                   list[r].copy_(parts[r].view(list[r].sizes()));
                 }
               });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  const auto source = lend_bytes(input, {"all_gather", "input", rank_});
  const auto target = lend_bytes(output, {"all_gather", "output", rank_});
  check_parts(output, input, size_, rank_, "all_gather");
  return track(c10d::OpType::_ALLGATHER_BASE,
               {communicator_->all_gather(source, target, options_with(opts.timeout))}, {output});
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::reduce_scatter(
    std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
    const c10d::ReduceScatterOptions& opts) {
  auto output = only(outputs, "reduce_scatter", "outputs");
  const auto& list = only(inputs, "reduce_scatter", "inputs");
  check_list(list, output, size_, rank_, "reduce_scatter", "inputs");
  std::vector<at::Tensor> flattened;
  for (const auto& tensor : list) flattened.push_back(tensor.reshape({-1}));
  auto flat = at::cat(flattened);
  auto work = _reduce_scatter_base(output, flat, opts);
  return work;
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  const auto source = lend(input, {"reduce_scatter", "input", rank_});
  const auto target = lend(output, {"reduce_scatter", "output", rank_});
  check_parts(input, output, size_, rank_, "reduce_scatter");
  const auto op = reduce_op_of(opts.reduceOp, "reduce_scatter", rank_);
  return track(c10d::OpType::_REDUCE_SCATTER_BASE,
               {communicator_->reduce_scatter(source, target, op, options_with(opts.timeout))},
               {output});
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::barrier(const c10d::BarrierOptions& opts) {
  return track(c10d::OpType::BARRIER, {communicator_->barrier(options_with(opts.timeout))}, {});
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::send(std::vector<at::Tensor>& tensors, int to,
                                                          int tag) {
  const auto span = lend_bytes(only(tensors, "send", "tensors"), {"send", "tensors[0]", rank_});
  return track(c10d::OpType::SEND, {communicator_->send(span, to, tag)}, {});
}

c10::intrusive_ptr<c10d::Work> ProcessGroupGradwire::recv(std::vector<at::Tensor>& tensors,
                                                          int from, int tag) {
  const auto span = lend_bytes(only(tensors, "recv", "tensors"), {"recv", "tensors[0]", rank_});
  return track(c10d::OpType::RECV, {communicator_->recv(span, from, tag)}, tensors);
}

void ProcessGroupGradwire::abort() {
  communicator_->abort(fmt::format("rank {} aborted its process group", rank_));
}

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<c10d::Store> store) {
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(std::move(store), communicator->rank(),
                                                       communicator->size());
  group->setBackend(c10::DeviceType::CPU, custom,
                    c10::make_intrusive<ProcessGroupGradwire>(std::move(communicator)));
  group->setDefaultBackend(custom);
  return group;
}

std::shared_ptr<Communicator> communicator_of(c10d::ProcessGroup& group) {
  if (!group.hasBackendForDeviceType(c10::DeviceType::CPU)) return nullptr;
  const auto backend = group.getBackend(c10::DeviceType::CPU);
  const auto* ours = dynamic_cast<const ProcessGroupGradwire*>(backend.get());
  return ours ? ours->communicator() : nullptr;
}

}  // namespace gradwire
