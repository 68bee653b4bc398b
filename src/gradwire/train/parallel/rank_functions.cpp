#include "gradwire/train/parallel/rank_functions.h"

#include <utility>
#include <vector>

#include "gradwire/base/box.h"
#include "gradwire/base/refuse.h"
#include "gradwire/host/wait_meter.h"
#include "gradwire/torch/releases.h"

namespace gradwire {

namespace collective {
namespace {

constexpr std::string_view kGather = "wait for parts of layer";

bool alone(const ProcessGroup& group) {
  return group->getSize() == 1;
}

Pending start_all_reduce(const torch::Tensor& x, c10d::ReduceOp::RedOpType operation,
                         const ProcessGroup& group) {
  if (alone(group) || x.numel() == 0) return {x, nullptr};
  std::vector<torch::Tensor> tensors{x.detach().clone(at::MemoryFormat::Contiguous)};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  auto work = group->allreduce(tensors, options);
  return {tensors[0], std::move(work)};
}

/// Lengths of all ranks' parts, times `row` elements.
std::vector<std::int64_t> part_lengths(std::int64_t size, std::int64_t row, int ranks) {
  std::vector<std::int64_t> lengths;
  for (int r = 0; r < ranks; ++r) {
    lengths.push_back((part_begin(size, ranks, r + 1) - part_begin(size, ranks, r)) * row);
  }
  return lengths;
}

torch::Tensor dimension_first(const torch::Tensor& x, std::int64_t dimension) {
  return x.detach().movedim(dimension, 0).contiguous();
}

std::vector<std::int64_t> with_rows(const torch::Tensor& rows, std::int64_t count) {
  auto sizes = rows.sizes().vec();
  sizes[0] = count;
  return sizes;
}

std::int64_t row_elements(const torch::Tensor& rows) {
  std::int64_t elements = 1;
  for (std::int64_t d = 1; d < rows.dim(); ++d) elements *= rows.size(d);
  return elements;
}

}  // namespace

torch::Tensor Pending::wait() const {
  if (work_) wait_measured(*work_, "wait for sum of layer");
  return result_;
}

Pending start_sum(const torch::Tensor& x, const ProcessGroup& group) {
  return start_all_reduce(x, c10d::ReduceOp::SUM, group);
}

torch::Tensor sum(const torch::Tensor& x, const ProcessGroup& group) {
  return start_sum(x, group).wait();
}

torch::Tensor max(const torch::Tensor& x, const ProcessGroup& group) {
  return start_all_reduce(x, c10d::ReduceOp::MAX, group).wait();
}

torch::Tensor stack(const torch::Tensor& x, const ProcessGroup& group) {
  return gather(x.unsqueeze(0), 0, group->getSize(), group);
}

torch::Tensor gather(const torch::Tensor& part, std::int64_t dimension, std::int64_t size,
                     const ProcessGroup& group) {
  if (alone(group)) return part;
  const int ranks = group->getSize();
  auto own = dimension_first(part, dimension);
  auto whole = torch::empty(with_rows(own, size), own.options());
  if (size % ranks == 0) {
    if (whole.numel() > 0) wait_measured(*all_gather_single(*group, whole, own), kGather);
  } else {
    auto flat = whole.view(-1);
    auto to_each = own.view(-1).repeat({ranks});
    auto received = part_lengths(size, row_elements(whole), ranks);
    std::vector<std::int64_t> sent(static_cast<std::size_t>(ranks), own.numel());
    wait_measured(*all_to_all_single(*group, flat, to_each, received, sent), kGather);
  }
  return whole.movedim(0, dimension);
}

torch::Tensor reduce_scatter(const torch::Tensor& x, std::int64_t dimension,
                             const ProcessGroup& group) {
  return start_reduce_scatter(x, dimension, group).wait();
}

namespace {

/// Unequal parts: rank r receives its rows of every rank, and adds them.
torch::Tensor exchanged_and_added(torch::Tensor whole, const ProcessGroup& group) {
  const int ranks = group->getSize();
  const auto size = whole.size(0);
  const auto own = static_cast<std::size_t>(group->getRank());
  auto part = torch::empty(with_rows(whole, part_lengths(size, 1, ranks)[own]), whole.options());
  auto of_rank = torch::empty({ranks * part.numel()}, part.options());
  auto flat = whole.view(-1);
  std::vector<std::int64_t> received(static_cast<std::size_t>(ranks), part.numel());
  auto sent = part_lengths(size, row_elements(whole), ranks);
  wait_measured(*all_to_all_single(*group, of_rank, flat, received, sent), "wait for sum of layer");
  of_rank = of_rank.view({ranks, part.numel()});
  auto total = part.view(-1);
  total.copy_(of_rank[0]);
  for (int r = 1; r < ranks; ++r) total.add_(of_rank[r]);
  return part;
}

}  // namespace

Pending start_reduce_scatter(const torch::Tensor& x, std::int64_t dimension,
                             const ProcessGroup& group) {
  if (alone(group)) return {x, nullptr};
  auto whole = dimension_first(x, dimension);
  const auto size = whole.size(0);
  if (size % group->getSize() != 0) {
    return {exchanged_and_added(whole, group).movedim(0, dimension), nullptr};
  }
  auto part = torch::empty(with_rows(whole, size / group->getSize()), whole.options());
  if (whole.numel() == 0) return {part.movedim(0, dimension), nullptr};
  auto work = reduce_scatter_single(*group, part, whole);
  return {part.movedim(0, dimension), std::move(work)};
}

torch::Tensor own_part(const torch::Tensor& whole, std::int64_t dimension,
                       const ProcessGroup& group) {
  const auto size = whole.size(dimension);
  const auto begin = part_begin(size, group->getSize(), group->getRank());
  const auto end = part_begin(size, group->getSize(), group->getRank() + 1);
  return whole.narrow(dimension, begin, end - begin);
}

}  // namespace collective

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldMap : torch::CustomClassHolder {
  explicit HeldMap(TensorMap m) : map(std::move(m)) {}
  TensorMap map;
};

struct LinearMap : torch::autograd::Function<LinearMap> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const TensorMap& forward, const TensorMap& backward) {
    context->saved_data["backward"] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldMap>(backward));
    return forward(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["backward"].toCapsule();
    const auto& map = c10::static_intrusive_pointer_cast<HeldMap>(held)->map;
    return {map(gradients[0]), torch::Tensor(), torch::Tensor()};
  }
};

torch::Tensor itself(const torch::Tensor& x) {
  return x;
}

}  // namespace

torch::Tensor linear_map(const torch::Tensor& x, const TensorMap& forward,
                         const TensorMap& backward) {
  return LinearMap::apply(x, forward, backward);
}

torch::Tensor copy_to_ranks(const torch::Tensor& x, const ProcessGroup& group) {
  if (group->getSize() == 1) return x;
  return linear_map(x, itself,
                    [group](const torch::Tensor& dy) { return collective::sum(dy, group); });
}

torch::Tensor sum_over_ranks(const torch::Tensor& x, const ProcessGroup& group) {
  if (group->getSize() == 1) return x;
  return linear_map(
      x, [&](const torch::Tensor& part) { return collective::sum(part, group); }, itself);
}

torch::Tensor gather_over_ranks(const torch::Tensor& part, std::int64_t dimension,
                                std::int64_t size, const ProcessGroup& group) {
  if (group->getSize() == 1) return part;
  return linear_map(
      part, [&](const torch::Tensor& x) { return collective::gather(x, dimension, size, group); },
      [=](const torch::Tensor& dy) { return collective::own_part(dy, dimension, group); });
}

torch::Tensor scatter_over_ranks(const torch::Tensor& whole, std::int64_t dimension,
                                 const ProcessGroup& group) {
  if (group->getSize() == 1) return whole;
  const auto size = whole.size(dimension);
  return linear_map(
      whole,
      [&](const torch::Tensor& x) { return collective::own_part(x, dimension, group).clone(); },
      [=](const torch::Tensor& dy) { return collective::gather(dy, dimension, size, group); });
}

torch::Tensor gather_to_ranks(const torch::Tensor& part, std::int64_t dimension, std::int64_t size,
                              const ProcessGroup& group) {
  if (group->getSize() == 1) return part;
  return linear_map(
      part, [&](const torch::Tensor& x) { return collective::gather(x, dimension, size, group); },
      [=](const torch::Tensor& dy) { return collective::reduce_scatter(dy, dimension, group); });
}

torch::Tensor reduce_scatter_over_ranks(const torch::Tensor& x, std::int64_t dimension,
                                        const ProcessGroup& group) {
  if (group->getSize() == 1) return x;
  const auto size = x.size(dimension);
  return linear_map(
      x,
      [&](const torch::Tensor& whole) {
        return collective::reduce_scatter(whole, dimension, group);
      },
      [=](const torch::Tensor& dy) { return collective::gather(dy, dimension, size, group); });
}

torch::Tensor dropout_of_part(const torch::Tensor& part, double p, bool training,
                              std::int64_t dimension, std::int64_t size,
                              const ProcessGroup& group) {
  if (!training || p == 0 || group->getSize() == 1) return torch::dropout(part, p, training);
  auto sizes = part.sizes().vec();
  sizes[static_cast<std::size_t>(dimension < 0 ? dimension + part.dim() : dimension)] = size;
  const auto ones = torch::ones(sizes, part.options().requires_grad(false));
  return part * collective::own_part(torch::dropout(ones, p, true), dimension, group);
}

}  // namespace gradwire
