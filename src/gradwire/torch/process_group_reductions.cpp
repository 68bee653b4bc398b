// Operations that combine elements; tensor_reduction.h lists the reductions.
#include <fmt/format.h>

#include "gradwire/torch/contiguous_copies.h"
#include "gradwire/torch/packed_tensors.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/releases.h"
#include "gradwire/torch/tensor_lists.h"
#include "gradwire/torch/tensor_reduction.h"

namespace gradwire {

using WorkPointer = ProcessGroupGradwire::WorkPointer;

WorkPointer ProcessGroupGradwire::allreduce(TensorList& tensors,
                                            const c10d::AllreduceOptions& opts) {
  if (is_on_device(tensors, {}, "all_reduce")) {
    only(tensors, name("all_reduce", "tensors"));
    return stage({.type = c10d::OpType::ALLREDUCE,
                  .inputs = tensors,
                  .outputs = tensors,
                  .cut = Cut::pairs,
                  .results = tensors,
                  .post = [opts](auto& host, TensorList& data, TensorList&) {
                    return host.allreduce(data, opts);
                  }});
  }
  const auto argument = name("all_reduce", "tensors[0]");
  ContiguousCopies copies;
  if (tensors.size() > 1) {
    TensorList one{reduce_locally(tensors, opts.reduceOp, name("all_reduce", "tensors"))};
    for (const at::Tensor& tensor : tensors) copies.also_copy_to(one.front(), tensor);
    return copies.copy_back(ProcessGroupGradwire::allreduce(one, opts), tensors);
  }
  TensorList dense = copies.written(tensors, argument);
  if (copies.any()) return copies.copy_back(allreduce(dense, opts), tensors);
  const auto& tensor = only(tensors, argument);
  const auto reduction = reduction_of(opts.reduceOp, tensor.scalar_type(), size_, argument);
  const auto span = lend_to(reduction, tensor, argument);
  const auto alive = communicator();  // Throws after shutdown(), before the tensor changes.
  premultiply(reduction, tensor);
  return track({.type = c10d::OpType::ALLREDUCE,
                .parts = {alive->all_reduce(span, reduction.op, options_with(opts.timeout))},
                .outputs = tensors});
}

WorkPointer ProcessGroupGradwire::allreduce_coalesced(TensorList& tensors,
                                                      const c10d::AllreduceCoalescedOptions& opts) {
  if (is_on_device(tensors, {}, "all_reduce_coalesced")) {
    return stage({.type = c10d::OpType::ALLREDUCE_COALESCED,
                  .inputs = tensors,
                  .outputs = tensors,
                  .cut = Cut::pairs,
                  .results = tensors,
                  .post = [opts](auto& host, TensorList& data, TensorList&) {
                    return host.allreduce_coalesced(data, opts);
                  }});
  }
  ContiguousCopies copies;
  TensorList apart = copies.written_separately(tensors, name("all_reduce_coalesced", "tensors"));
  if (copies.any()) return copies.copy_back(allreduce_coalesced(apart, opts), tensors);
  // Check everything before starting anything: half a list would desynchronize the ranks.
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto text = fmt::format("tensors[{}]", i);
    const auto argument = name("all_reduce_coalesced", text);
    lend_to(reduction_of(opts.reduceOp, tensors[i].scalar_type(), size_, argument), tensors[i],
            argument);
  }
  const auto alive = communicator();  // Throws after shutdown(), before the tensors change.
  TensorOperation operation{.type = c10d::OpType::ALLREDUCE_COALESCED, .outputs = tensors};
  std::vector<std::pair<at::Tensor, TensorList>> copies_of;  // Flat results, and where they go.
  alive->coalesced([&](Communicator& together) {
    for (const TensorPack& pack : packs_of(tensors)) {
      const TensorList members = members_of(pack, tensors);
      at::Tensor data = members.front();
      if (members.size() > 1) copies_of.emplace_back(data = flattened(members), members);
      const auto argument = name("all_reduce_coalesced", "tensors");
      const auto reduction = reduction_of(opts.reduceOp, data.scalar_type(), size_, argument);
      premultiply(reduction, data);
      OperationOptions options = options_with(opts.timeout);
      options.layout = pack.layout;
      operation.parts.push_back(
          together.all_reduce(lend_to(reduction, data, argument), reduction.op, options));
    }
  });
  if (!copies_of.empty()) {
    operation.finish = [copies_of] {
      for (const auto& [flat, members] : copies_of) unflatten(flat, members);
    };
  }
  return track(std::move(operation));
}

WorkPointer ProcessGroupGradwire::reduce(TensorList& tensors, const c10d::ReduceOptions& opts) {
  if (is_on_device(tensors, {}, "reduce")) {
    only(tensors, name("reduce", "tensors"));
    return stage({.type = c10d::OpType::REDUCE,
                  .inputs = tensors,
                  .outputs = rank_ == opts.rootRank ? tensors : TensorList{at::Tensor()},
                  .cut = Cut::pairs,
                  .results = tensors,
                  .post = [opts](auto& host, TensorList& data, TensorList&) {
                    return host.reduce(data, opts);
                  }});
  }
  const auto argument = name("reduce", "tensors[0]");
  ContiguousCopies copies;
  TensorList dense = copies.written(tensors, argument);
  if (copies.any()) return copies.copy_back(reduce(dense, opts), tensors);
  const auto& tensor = only(tensors, argument);
  const auto root = static_cast<Rank>(opts.rootRank);
  const auto reduction = reduction_of(opts.reduceOp, tensor.scalar_type(), size_, argument);
  lend_to(reduction, tensor, argument);
  const auto alive = communicator();
  // On ranks other than the root the tensor must not change.
  auto data = tensor;
  if (rank_ == root) {
    premultiply(reduction, tensor);
  } else {
    data = premultiplied(reduction, tensor);
  }
  return track({.type = c10d::OpType::REDUCE,
                .parts = {alive->reduce(lend_to(reduction, data, argument), root, reduction.op,
                                        options_with(opts.timeout))},
                .outputs = tensors});
}

WorkPointer ProcessGroupGradwire::reduce_scatter(TensorList& outputs,
                                                 std::vector<TensorList>& inputs,
                                                 const c10d::ReduceScatterOptions& opts) {
  if (is_on_device(joined(inputs), outputs, "reduce_scatter")) {
    return stage({.type = c10d::OpType::REDUCE_SCATTER,
                  .inputs = joined(inputs),
                  .outputs = outputs,
                  .cut = Cut::lists,
                  .results = outputs,
                  .post = [opts, like = inputs](auto& host, TensorList& in, TensorList& out) {
                    auto lists = split_as(like, in);
                    return host.reduce_scatter(out, lists, opts);
                  }});
  }
  ContiguousCopies copies;
  TensorList dense_outputs = copies.written(outputs, name("reduce_scatter", "outputs[0]"));
  std::vector<TensorList> dense_inputs;
  for (const TensorList& list : inputs) dense_inputs.push_back(copies.read(list));
  if (copies.any()) {
    return copies.copy_back(reduce_scatter(dense_outputs, dense_inputs, opts), outputs);
  }
  const auto& output = only(outputs, name("reduce_scatter", "outputs"));
  const auto argument = name("reduce_scatter", "inputs");
  const auto& list = only(inputs, argument);
  const auto reduction = reduction_of(opts.reduceOp, output.scalar_type(), size_, argument);
  const auto target = lend_to(reduction, output, name("reduce_scatter", "outputs[0]"));
  check_list(list, output, size_, argument);
  for (const at::Tensor& tensor : list) lend_to(reduction, tensor, argument);
  const auto options = options_with(opts.timeout);
  const auto flat = premultiplied(reduction, flattened(list));
  if (all_equal(list)) {
    return track({.type = c10d::OpType::REDUCE_SCATTER,
                  .parts = {communicator()->reduce_scatter(lend_to(reduction, flat, argument),
                                                           target, reduction.op, options)},
                  .outputs = outputs});
  }
  // Parts of different sizes are reduced one by one.
  TensorOperation operation{.type = c10d::OpType::REDUCE_SCATTER, .outputs = outputs};
  TensorList parts;
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : list) {
    parts.push_back(flat.narrow(0, begin, tensor.numel()));
    begin += tensor.numel();
  }
  communicator()->coalesced([&](Communicator& together) {
    for (std::size_t root = 0; root < parts.size(); ++root) {
      operation.parts.push_back(together.reduce(lend_to(reduction, parts[root], argument),
                                                static_cast<Rank>(root), reduction.op, options));
    }
  });
  operation.finish = [own = parts[static_cast<std::size_t>(rank_)], output] {
    unflatten(own, {output});
  };
  return track(std::move(operation));
}

WorkPointer ProcessGroupGradwire::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& opts) {
  TensorList outputs{output};
  TensorList inputs{input};
  if (is_on_device(outputs, inputs, "reduce_scatter")) {
    return stage({.type = c10d::OpType::_REDUCE_SCATTER_BASE,
                  .inputs = inputs,
                  .outputs = outputs,
                  .cut = Cut::pairs,
                  .input_rows = size_,
                  .results = outputs,
                  .post = [opts](auto& host, TensorList& in, TensorList& out) {
                    return host._reduce_scatter_base(out.front(), in.front(), opts);
                  }});
  }
  return scatter_reduced(outputs, inputs, opts, c10d::OpType::_REDUCE_SCATTER_BASE);
}

WorkPointer ProcessGroupGradwire::reduce_scatter_tensor_coalesced(
    TensorList& outputs, TensorList& inputs, const c10d::ReduceScatterOptions& opts) {
  if (is_on_device(outputs, inputs, "reduce_scatter")) {
    return stage({.type = coalesced_reduce_scatter_type(),
                  .inputs = inputs,
                  .outputs = outputs,
                  .cut = Cut::pairs,
                  .input_rows = size_,
                  .results = outputs,
                  .post = [opts](auto& host, TensorList& in, TensorList& out) {
                    return host.reduce_scatter_tensor_coalesced(out, in, opts);
                  }});
  }
  return scatter_reduced(outputs, inputs, opts, coalesced_reduce_scatter_type());
}

WorkPointer ProcessGroupGradwire::scatter_reduced(const TensorList& outputs,
                                                  const TensorList& inputs,
                                                  const c10d::ReduceScatterOptions& opts,
                                                  c10d::OpType type) {
  const auto from = name("reduce_scatter", "input");
  const auto into = name("reduce_scatter", "output");
  check_pairs(outputs.size(), inputs.size(), into);
  ContiguousCopies copies;
  const TensorList dense_outputs = copies.written(outputs, into);
  const TensorList dense_inputs = copies.read(inputs);
  if (copies.any()) {
    return copies.copy_back(scatter_reduced(dense_outputs, dense_inputs, opts, type), outputs);
  }
  check_disjoint(outputs, into);
  struct Pair {
    LentSpan source;
    LentSpan target;
    ReduceOp op;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_parts(inputs[i], outputs[i], size_, from);
    const auto reduction = reduction_of(opts.reduceOp, inputs[i].scalar_type(), size_, from);
    lend_to(reduction, inputs[i], from);
    pairs.push_back({lend_to(reduction, premultiplied(reduction, inputs[i]), from),
                     lend_to(reduction, outputs[i], into), reduction.op});
  }
  TensorOperation operation{.type = type, .outputs = outputs};
  communicator()->coalesced([&](Communicator& together) {
    for (const Pair& pair : pairs) {
      operation.parts.push_back(
          together.reduce_scatter(pair.source, pair.target, pair.op, options_with(opts.timeout)));
    }
  });
  return track(std::move(operation));
}

}  // namespace gradwire
