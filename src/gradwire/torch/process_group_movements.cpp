

// Operations that move elements of any type without changing them.
#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/contiguous_copies.h"
#include "gradwire/torch/packed_tensors.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_lists.h"

namespace gradwire {

using WorkPointer = ProcessGroupGradwire::WorkPointer;

WorkPointer ProcessGroupGradwire::broadcast(TensorList& tensors,
                                            const c10d::BroadcastOptions& opts) {
  if (is_on_device(tensors, {}, "broadcast")) {
    only(tensors, name("broadcast", "tensors"));
    const bool root = rank_ == opts.rootRank;
    const TensorList none{at::Tensor()};
    return stage({.type = c10d::OpType::BROADCAST,
                  .inputs = root ? tensors : none,
                  .outputs = root ? none : tensors,
                  .cut = Cut::pairs,
                  .results = tensors,
                  .post = [opts, root](auto& host, TensorList& in, TensorList& out) {
                    return host.broadcast(root ? in : out, opts);
                  }});
  }
  const auto argument = name("broadcast", "tensors[0]");
  ContiguousCopies copies;
  if (tensors.size() > 1) {
    check_alike(tensors, name("broadcast", "tensors"));
    const auto root = static_cast<std::size_t>(opts.rootTensor);
    if (root >= tensors.size()) {
      refuse(name("broadcast", "rootTensor"),
             fmt::format("is {}, but there are {} tensors", opts.rootTensor, tensors.size()));
    }
    TensorList one{tensors[root]};
    for (const at::Tensor& tensor : tensors) copies.also_copy_to(one.front(), tensor);
    return copies.copy_back(broadcast(one, opts), tensors);
  }
  TensorList dense = copies.written(tensors, argument);
  if (copies.any()) return copies.copy_back(broadcast(dense, opts), tensors);
  const auto span = lend_bytes(only(tensors, argument), argument);
  return track({.type = c10d::OpType::BROADCAST,
                .parts = {communicator()->broadcast(span, static_cast<Rank>(opts.rootRank),
                                                    options_with(opts.timeout))},
                .outputs = tensors});
}

namespace {

/// One input, and where the inputs of all ranks go.
struct ListGather {
  at::Tensor input;
  TensorList list;  ///< By rank.
  at::Tensor flat;  ///< Gather buffer if the inputs of all ranks have one size.
  std::uint64_t layout = 0;
};

void check_gather(const at::Tensor& input, const TensorList& list, int size,
                  const ArgumentName& name) {
  lend_bytes(input, name);
  check_list(list, input, size, name);
  for (const at::Tensor& output : list) lend_bytes(output, name);
}

/// Gathers inputs of one size on all ranks in packs; lists[i][r] = inputs[i] of rank r.
std::vector<ListGather> packed_gathers(const TensorList& inputs,
                                       const std::vector<TensorList>& lists) {
  std::vector<ListGather> gathers;
  for (const TensorPack& pack : packs_of(inputs)) {
    const TensorList members = members_of(pack, inputs);
    ListGather& gather = gathers.emplace_back();
    gather.input = members.size() > 1 ? flattened(members) : members.front();
    gather.layout = pack.layout;
    for (std::size_t rank = 0; rank < lists.front().size(); ++rank) {
      for (const std::size_t member : pack.members) gather.list.push_back(lists[member][rank]);
    }
    gather.flat = flat_for(gather.list);
  }
  return gathers;
}

std::vector<ListGather> plan_gathers(const TensorList& inputs,
                                     const std::vector<TensorList>& lists) {
  TensorList equal_inputs;
  std::vector<TensorList> equal_lists;
  std::vector<ListGather> gathers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!all_equal(lists[i])) {
      gathers.push_back({.input = inputs[i], .list = lists[i]});
      continue;
    }
    equal_inputs.push_back(inputs[i]);
    equal_lists.push_back(lists[i]);
  }
  for (ListGather& gather : packed_gathers(equal_inputs, equal_lists))
    gathers.push_back(std::move(gather));
  return gathers;
}

/// Parts of different sizes are gathered by one broadcast each.
void post_gather(Communicator& communicator, const ListGather& gather, const ArgumentName& name,
                 const OperationOptions& options, std::vector<Work>& parts) {
  if (gather.flat.defined()) {
    OperationOptions own = options;
    own.layout = gather.layout;
    parts.push_back(communicator.all_gather(lend_bytes(gather.input, name),
                                            lend_bytes(gather.flat, name), own));
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor& own = gather.list[static_cast<std::size_t>(name.rank)];
  own.copy_(gather.input.view(own.sizes()));
  for (std::size_t root = 0; root < gather.list.size(); ++root) {
    parts.push_back(communicator.broadcast(lend_bytes(gather.list[root], name),
                                           static_cast<Rank>(root), options));
  }
}

}  // namespace

/// lists[i][r] = inputs[i] of rank r.
WorkPointer ProcessGroupGradwire::gather_lists(const std::vector<TensorList>& lists,
                                               const TensorList& inputs, c10d::OpType type,
                                               const OperationOptions& options) {
  ContiguousCopies copies;
  std::vector<TensorList> dense_lists;
  for (const TensorList& list : lists) {
    dense_lists.push_back(copies.written(list, name("all_gather", "outputs")));
  }
  const TensorList dense_inputs = copies.read(inputs);
  if (copies.any()) {
    return copies.copy_back(gather_lists(dense_lists, dense_inputs, type, options), joined(lists));
  }
  check_disjoint(joined(lists), name("all_gather", "outputs"));
  TensorOperation operation{.type = type};
  // Check everything before starting anything: half a list would desynchronize the ranks.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto argument = fmt::format("outputs[{}]", i);
    check_gather(inputs[i], lists[i], size_, name("all_gather", argument));
    for (const at::Tensor& output : lists[i]) operation.outputs.push_back(output);
  }
  const std::vector<ListGather> gathers = plan_gathers(inputs, lists);
  communicator()->coalesced([&](Communicator& together) {
    for (const ListGather& gather : gathers) {
      post_gather(together, gather, name("all_gather", "outputs"), options, operation.parts);
    }
  });
  operation.finish = [gathers] {
    for (const ListGather& gather : gathers) {
      if (gather.flat.defined()) unflatten(gather.flat, gather.list);
    }
  };
  return track(std::move(operation));
}

WorkPointer ProcessGroupGradwire::allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                                            const c10d::AllgatherOptions& opts) {
  if (is_on_device(joined(outputs), inputs, "all_gather")) {
    return stage({.type = c10d::OpType::ALLGATHER,
                  .inputs = inputs,
                  .outputs = joined(outputs),
                  .cut = Cut::lists,
                  .results = joined(outputs),
                  .post = [opts, like = outputs](auto& host, TensorList& in, TensorList& out) {
                    auto lists = split_as(like, out);
                    return host.allgather(lists, in, opts);
                  }});
  }
  if (inputs.size() > 1) return gather_many(outputs, inputs, options_with(opts.timeout));
  only(inputs, name("all_gather", "inputs"));
  only(outputs, name("all_gather", "outputs"));
  return gather_lists(outputs, inputs, c10d::OpType::ALLGATHER, options_with(opts.timeout));
}

/// Gathers into the first list, and copies the others from it.
WorkPointer ProcessGroupGradwire::gather_many(const std::vector<TensorList>& outputs,
                                              const TensorList& inputs,
                                              const OperationOptions& options) {
  const auto argument = name("all_gather", "outputs");
  check_alike(inputs, name("all_gather", "inputs"));
  check_pairs(outputs.size(), inputs.size(), argument);
  const std::size_t count = inputs.size();
  for (const TensorList& list : outputs) {
    check_pairs(list.size(), count * static_cast<std::size_t>(size_), argument);
    check_alike(list, argument);
  }
  std::vector<TensorList> by_input(count);
  for (std::size_t i = 0; i < outputs[0].size(); ++i) {
    by_input[i % count].push_back(outputs[0][i]);
  }
  ContiguousCopies copies;
  for (std::size_t list = 1; list < count; ++list) {
    for (std::size_t i = 0; i < outputs[list].size(); ++i) {
      copies.also_copy_to(outputs[0][i], outputs[list][i]);
    }
  }
  return copies.copy_back(gather_lists(by_input, inputs, c10d::OpType::ALLGATHER, options),
                          joined(outputs));
}

WorkPointer ProcessGroupGradwire::allgather_coalesced(std::vector<TensorList>& outputs,
                                                      TensorList& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  if (is_on_device(joined(outputs), inputs, "all_gather_coalesced")) {
    return stage({.type = c10d::OpType::ALLGATHER_COALESCED,
                  .inputs = inputs,
                  .outputs = joined(outputs),
                  .results = joined(outputs),
                  .post = [opts, like = outputs](auto& host, TensorList& in, TensorList& out) {
                    auto lists = split_as(like, out);
                    return host.allgather_coalesced(lists, in, opts);
                  }});
  }
  const auto argument = name("all_gather_coalesced", "outputs");
  std::vector<TensorList> by_input(inputs.size());
  for (const TensorList& of_rank : outputs) {
    check_pairs(of_rank.size(), inputs.size(), argument);
    for (std::size_t i = 0; i < of_rank.size(); ++i) by_input[i].push_back(of_rank[i]);
  }
  return gather_lists(by_input, inputs, c10d::OpType::ALLGATHER_COALESCED,
                      options_with(opts.timeout));
}

WorkPointer ProcessGroupGradwire::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& opts) {
  if (is_on_device({output}, {input}, "all_gather")) {
    return stage({.type = c10d::OpType::_ALLGATHER_BASE,
                  .inputs = {input},
                  .outputs = {output},
                  .cut = Cut::pairs,
                  .output_rows = size_,
                  .results = {output},
                  .post = [opts](auto& host, TensorList& in, TensorList& out) {
                    return host._allgather_base(out.front(), in.front(), opts);
                  }});
  }
  ContiguousCopies copies;
  at::Tensor dense_output = copies.written(output, name("all_gather", "output"));
  at::Tensor dense_input = copies.read(input);
  if (copies.any()) {
    return copies.copy_back(_allgather_base(dense_output, dense_input, opts), {output});
  }
  const auto source = lend_bytes(input, name("all_gather", "input"));
  const auto target = lend_bytes(output, name("all_gather", "output"));
  check_parts(output, input, size_, name("all_gather", "output"));
  return track({.type = c10d::OpType::_ALLGATHER_BASE,
                .parts = {communicator()->all_gather(source, target, options_with(opts.timeout))},
                .outputs = {output}});
}

WorkPointer ProcessGroupGradwire::allgather_into_tensor_coalesced(
    TensorList& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) {
  if (is_on_device(outputs, inputs, "all_gather_into_tensor_coalesced")) {
    return stage({.type = c10d::OpType::COALESCED,
                  .inputs = inputs,
                  .outputs = outputs,
                  .cut = Cut::pairs,
                  .output_rows = size_,
                  .results = outputs,
                  .post = [opts](auto& host, TensorList& in, TensorList& out) {
                    return host.allgather_into_tensor_coalesced(out, in, opts);
                  }});
  }
  const auto argument = name("all_gather_into_tensor_coalesced", "outputs");
  check_pairs(outputs.size(), inputs.size(), argument);
  ContiguousCopies copies;
  TensorList dense_outputs = copies.written(outputs, argument);
  TensorList dense_inputs = copies.read(inputs);
  if (copies.any()) {
    return copies.copy_back(allgather_into_tensor_coalesced(dense_outputs, dense_inputs, opts),
                            outputs);
  }
  check_disjoint(outputs, argument);
  TensorOperation operation{.type = c10d::OpType::COALESCED, .outputs = outputs};
  std::vector<std::pair<LentSpan, LentSpan>> pairs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_parts(outputs[i], inputs[i], size_, argument);
    pairs.emplace_back(lend_bytes(inputs[i], argument), lend_bytes(outputs[i], argument));
  }
  communicator()->coalesced([&](Communicator& together) {
    for (const auto& [source, target] : pairs) {
      operation.parts.push_back(together.all_gather(source, target, options_with(opts.timeout)));
    }
  });
  return track(std::move(operation));
}

WorkPointer ProcessGroupGradwire::gather(std::vector<TensorList>& outputs, TensorList& inputs,
                                         const c10d::GatherOptions& opts) {
  if (is_on_device(joined(outputs), inputs, "gather")) {
    return stage({.type = c10d::OpType::GATHER,
                  .inputs = inputs,
                  .outputs = joined(outputs),
                  .cut = Cut::lists,
                  .results = joined(outputs),
                  .post = [opts, like = outputs](auto& host, TensorList& in, TensorList& out) {
                    auto lists = split_as(like, out);
                    return host.gather(lists, in, opts);
                  }});
  }
  ContiguousCopies copies;
  std::vector<TensorList> dense_outputs;
  for (const TensorList& list : outputs) {
    dense_outputs.push_back(copies.written(list, name("gather", "outputs")));
  }
  TensorList dense_inputs = copies.read(inputs);
  if (copies.any()) {
    return copies.copy_back(gather(dense_outputs, dense_inputs, opts), joined(outputs));
  }
  const auto& input = only(inputs, name("gather", "inputs"));
  const auto source = lend_bytes(input, name("gather", "inputs[0]"));
  const auto root = static_cast<Rank>(opts.rootRank);
  const auto options = options_with(opts.timeout);
  const auto argument = name("gather", "outputs");
  if (rank_ != root) {
    if (!outputs.empty()) refuse(argument, "must be empty on a rank that is not the root");
    return track({.type = c10d::OpType::GATHER,
                  .parts = {communicator()->gather(source, {}, root, options)}});
  }
  const TensorList list = only(outputs, argument);
  check_list(list, input, size_, argument);
  check_equal(list, input, argument);
  const auto flat = flat_for(list);
  return track(
      {.type = c10d::OpType::GATHER,
       .parts = {communicator()->gather(source, lend_bytes(flat, argument), root, options)},
       .outputs = list,
       .finish = [flat, list] { unflatten(flat, list); }});
}

WorkPointer ProcessGroupGradwire::gather_single(at::Tensor& output, at::Tensor& input,
                                                const c10d::GatherOptions& opts) {
  std::vector<TensorList> outputs;
  TensorList inputs{input};
  if (rank_ != opts.rootRank) return gather(outputs, inputs, opts);
  const auto argument = name("gather_single", "output");
  check_parts(output, input, size_, argument);
  ContiguousCopies copies;
  at::Tensor dense = copies.written(output, argument);
  if (copies.any()) return copies.copy_back(gather_single(dense, input, opts), {output});
  outputs.push_back(dense.view({-1}).tensor_split(size_));
  return gather(outputs, inputs, opts);
}

WorkPointer ProcessGroupGradwire::scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                                          const c10d::ScatterOptions& opts) {
  if (is_on_device(joined(inputs), outputs, "scatter")) {
    return stage({.type = c10d::OpType::SCATTER,
                  .inputs = joined(inputs),
                  .outputs = outputs,
                  .cut = Cut::lists,
                  .results = outputs,
                  .post = [opts, like = inputs](auto& host, TensorList& in, TensorList& out) {
                    auto lists = split_as(like, in);
                    return host.scatter(out, lists, opts);
                  }});
  }
  ContiguousCopies copies;
  TensorList dense_outputs = copies.written(outputs, name("scatter", "outputs[0]"));
  std::vector<TensorList> dense_inputs;
  for (const TensorList& list : inputs) dense_inputs.push_back(copies.read(list));
  if (copies.any()) {
    return copies.copy_back(scatter(dense_outputs, dense_inputs, opts), outputs);
  }
  const auto& output = only(outputs, name("scatter", "outputs"));
  const auto target = lend_bytes(output, name("scatter", "outputs[0]"));
  const auto root = static_cast<Rank>(opts.rootRank);
  const auto argument = name("scatter", "inputs");
  LentConstSpan source;
  if (rank_ == root) {
    const auto& list = only(inputs, argument);
    check_list(list, output, size_, argument);
    check_equal(list, output, argument);
    source = lend_bytes(flattened(list), argument);
  } else if (!inputs.empty()) {
    refuse(argument, "must be empty on a rank that is not the root");
  }
  return track(
      {.type = c10d::OpType::SCATTER,
       .parts = {communicator()->scatter(source, target, root, options_with(opts.timeout))},
       .outputs = outputs});
}

WorkPointer ProcessGroupGradwire::alltoall(TensorList& outputs, TensorList& inputs,
                                           const c10d::AllToAllOptions& opts) {
  if (is_on_device(outputs, inputs, "all_to_all")) {
    return stage({.type = c10d::OpType::ALLTOALL,
                  .inputs = inputs,
                  .outputs = outputs,
                  .results = outputs,
                  .post = [opts](auto& host, TensorList& in, TensorList& out) {
                    return host.alltoall(out, in, opts);
                  }});
  }
  const auto into = name("all_to_all", "outputs");
  const auto from = name("all_to_all", "inputs");
  ContiguousCopies copies;
  TensorList dense_outputs = copies.written(outputs, into);
  TensorList dense_inputs = copies.read(inputs);
  if (copies.any()) {
    return copies.copy_back(alltoall(dense_outputs, dense_inputs, opts), outputs);
  }
  check_pairs(outputs.size(), static_cast<std::size_t>(size_), into);
  check_pairs(inputs.size(), static_cast<std::size_t>(size_), from);
  for (const at::Tensor& tensor : inputs) lend_bytes(tensor, from);
  for (const at::Tensor& tensor : outputs) lend_bytes(tensor, into);
  const auto own = static_cast<std::size_t>(rank_);
  check_list(outputs, inputs[own], size_, into);
  check_list(inputs, outputs[own], size_, from);
  const auto target = flat_for(outputs);
  const TensorList list = outputs;
  const auto sent = lend_bytes(flattened(inputs), from);
  return track(
      {.type = c10d::OpType::ALLTOALL,
       .parts = {communicator()->all_to_all(sent, lend_bytes(target, into), element_counts(inputs),
                                            element_counts(outputs), options_with(opts.timeout))},
       .outputs = list,
       .finish = [target, list] { unflatten(target, list); }});
}

WorkPointer ProcessGroupGradwire::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<std::int64_t>& output_splits,
                                                std::vector<std::int64_t>& input_splits,
                                                const c10d::AllToAllOptions& opts) {
  if (is_on_device({output}, {input}, "all_to_all")) {
    const auto shared = [&](const at::Tensor& tensor) {
      return tensor.dim() > 0 && tensor.size(0) % size_ == 0;
    };
    const bool equal =
        output_splits.empty() && input_splits.empty() && shared(output) && shared(input);
    return stage({.type = c10d::OpType::ALLTOALL_BASE,
                  .inputs = {input},
                  .outputs = {output},
                  .cut = equal ? Cut::pairs : Cut::none,
                  .input_rows = size_,
                  .output_rows = size_,
                  .results = {output},
                  .post = [opts, output_splits, input_splits](auto& host, TensorList& in,
                                                              TensorList& out) mutable {
                    return host.alltoall_base(out.front(), in.front(), output_splits, input_splits,
                                              opts);
                  }});
  }
  const auto into = name("all_to_all", "output");
  const auto from = name("all_to_all", "input");
  ContiguousCopies copies;
  at::Tensor dense_output = copies.written(output, into);
  at::Tensor dense_input = copies.read(input);
  if (copies.any()) {
    return copies.copy_back(
        alltoall_base(dense_output, dense_input, output_splits, input_splits, opts), {output});
  }
  const auto source = lend_bytes(input, from);
  const auto target = lend_bytes(output, into);
  if (output.scalar_type() != input.scalar_type()) {
    refuse(into, fmt::format("has elements of {}, but the input has elements of {}",
                             torch::toString(output.scalar_type()),
                             torch::toString(input.scalar_type())));
  }
  const auto expected = element_counts(output, output_splits, size_, into);
  const auto sent = element_counts(input, input_splits, size_, from);
  const auto options = options_with(opts.timeout);
  // Every rank agrees if there are splits; they may disagree on whether the splits are equal.
  const bool equal = output_splits.empty() && input_splits.empty();
  if (equal && output.numel() != input.numel()) check_parts(output, input, 1, into);
  return track(
      {.type = c10d::OpType::ALLTOALL_BASE,
       .parts = {equal ? communicator()->all_to_all(source, target, options)
                       : communicator()->all_to_all(source, target, sent, expected, options)},
       .outputs = {output}});
}

}  // namespace gradwire

// Messages between two ranks, and barriers.

namespace gradwire {

using WorkPointer = ProcessGroupGradwire::WorkPointer;

WorkPointer ProcessGroupGradwire::send(TensorList& tensors, int to, int tag) {
  // Messages are not cut: the peer may be on a CPU.
  if (is_on_device(tensors, {}, "send")) {
    return stage(
        {.type = c10d::OpType::SEND,
         .inputs = tensors,
         .post = [=](auto& host, TensorList& in, TensorList&) { return host.send(in, to, tag); }});
  }
  const auto argument = name("send", "tensors[0]");
  ContiguousCopies copies;
  const auto span = lend_bytes(copies.read(only(tensors, argument)), argument);
  return track({.type = c10d::OpType::SEND,
                .parts = {communicator()->send(span, to, tag, options_with({}))}});
}

WorkPointer ProcessGroupGradwire::recv(TensorList& tensors, int from, int tag) {
  if (is_on_device(tensors, {}, "recv")) {
    return stage({.type = c10d::OpType::RECV,
                  .outputs = tensors,
                  .results = tensors,
                  .post = [=](auto& host, TensorList&, TensorList& out) {
                    return host.recv(out, from, tag);
                  }});
  }
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
  if (is_on_device(tensors, {}, "recv_any_source")) {
    return stage({.type = c10d::OpType::RECVANYSOURCE,
                  .outputs = tensors,
                  .results = tensors,
                  .post = [=](auto& host, TensorList&, TensorList& out) {
                    return host.recvAnysource(out, tag);
                  }});
  }
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
                .finish = [unmoved = unmoved()] { unmoved->move(); }});
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
