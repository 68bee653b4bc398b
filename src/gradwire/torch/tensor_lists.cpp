#include "gradwire/torch/tensor_lists.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace gradwire {

void refuse(const ArgumentName& name, const std::string& reason) {
  throw Exception(ErrorKind::invalid_argument,
                  fmt::format("rank {}: {}, argument '{}': {}", name.rank, name.operation,
                              name.argument, reason));
}

const at::Tensor& only(const TensorList& tensors, const ArgumentName& name) {
  if (tensors.size() == 1) return tensors.front();
  refuse(name, fmt::format("must have one tensor, but has {}", tensors.size()));
}

const TensorList& only(const std::vector<TensorList>& lists, const ArgumentName& name) {
  if (lists.size() == 1) return lists.front();
  refuse(name, fmt::format("must have one list of tensors, but has {}", lists.size()));
}

namespace {

std::string elements_of(const at::Tensor& tensor) {
  return fmt::format("{} elements of {}", tensor.numel(), torch::toString(tensor.scalar_type()));
}

}  // namespace

void check_list(const TensorList& list, const at::Tensor& like, int size,
                const ArgumentName& name) {
  if (list.size() != static_cast<std::size_t>(size)) {
    refuse(name,
           fmt::format("must have one tensor for each of {} ranks, but has {}", size, list.size()));
  }
  for (std::size_t r = 0; r < list.size(); ++r) {
    if (list[r].device() != like.device()) {
      refuse(name, fmt::format("has a tensor for rank {} on {}; it must be on {}: move it", r,
                               list[r].device().str(), like.device().str()));
    }
    const bool own = r == static_cast<std::size_t>(name.rank);
    if (list[r].scalar_type() == like.scalar_type() && (!own || list[r].numel() == like.numel())) {
      continue;
    }
    refuse(name, fmt::format("has a tensor of {} for rank {}, which does not match one of {}",
                             elements_of(list[r]), r, elements_of(like)));
  }
}

bool all_equal(const TensorList& list) {
  return std::ranges::all_of(
      list, [&](const at::Tensor& tensor) { return tensor.numel() == list.front().numel(); });
}

void check_equal(const TensorList& list, const at::Tensor& like, const ArgumentName& name) {
  for (const at::Tensor& tensor : list) {
    if (tensor.numel() == like.numel()) continue;
    refuse(name, fmt::format("has a tensor of {}, which does not match one of {}",
                             elements_of(tensor), elements_of(like)));
  }
}

void check_alike(const TensorList& list, const ArgumentName& name) {
  for (const at::Tensor& tensor : list) {
    if (!tensor.defined()) refuse(name, "a tensor is undefined");
    if (tensor.layout() != at::kStrided || !tensor.is_cpu()) {
      refuse(name, "several tensors of one rank must be dense and on the CPU; pass one at a time");
    }
    if (tensor.sizes() == list[0].sizes() && tensor.scalar_type() == list[0].scalar_type()) {
      continue;
    }
    refuse(name, fmt::format("has a tensor of {}, which does not match one of {}; several tensors "
                             "of one rank must have one size and type",
                             elements_of(tensor), elements_of(list[0])));
  }
}

void check_parts(const at::Tensor& whole, const at::Tensor& part, int size,
                 const ArgumentName& name) {
  if (whole.numel() == part.numel() * size && whole.scalar_type() == part.scalar_type()) return;
  refuse(name, fmt::format("{} are not {} times {}", elements_of(whole), size, elements_of(part)));
}

void check_pairs(std::size_t outputs, std::size_t inputs, const ArgumentName& name) {
  if (outputs == inputs) return;
  refuse(name, fmt::format("has {} tensors for {} inputs", outputs, inputs));
}

at::Tensor flat_for(const TensorList& list) {
  std::int64_t total = 0;
  for (const at::Tensor& tensor : list) total += tensor.numel();
  return at::empty({total}, list.front().options().requires_grad(false));
}

at::Tensor flattened(const TensorList& list) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : list) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

void unflatten(const at::Tensor& flat, const TensorList& list) {
  // The list may contain inference tensors, whatever this thread's mode.
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : list) {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

TensorList joined(const TensorList& some, const TensorList& others) {
  TensorList all = some;
  std::ranges::copy(others, std::back_inserter(all));
  return all;
}

TensorList joined(const std::vector<TensorList>& lists) {
  TensorList all;
  for (const TensorList& list : lists) std::ranges::copy(list, std::back_inserter(all));
  return all;
}

std::vector<TensorList> split_as(const std::vector<TensorList>& like, const TensorList& all) {
  std::vector<TensorList> lists;
  auto next = all.begin();
  for (const TensorList& list : like) {
    const auto end = next + static_cast<std::ptrdiff_t>(list.size());
    lists.emplace_back(next, end);
    next = end;
  }
  return lists;
}

namespace {

/// Elements in the span of lend_bytes() per element of the tensor.
std::size_t lent_elements(const at::Tensor& tensor) {
  return data_type_of(tensor.scalar_type()) ? 1 : tensor.element_size();
}

}  // namespace

std::vector<std::size_t> element_counts(const TensorList& list) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : list) {
    counts.push_back(static_cast<std::size_t>(tensor.numel()) * lent_elements(tensor));
  }
  return counts;
}

std::vector<std::size_t> element_counts(const at::Tensor& tensor,
                                        const std::vector<std::int64_t>& splits, int size,
                                        const ArgumentName& name) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    if (rows % size == 0) {
      const auto all = static_cast<std::size_t>(tensor.numel()) * lent_elements(tensor);
      return std::vector<std::size_t>(ranks, all / ranks);
    }
    refuse(name, fmt::format("has {} rows, which is not divisible by {} ranks; pass split sizes",
                             rows, size));
  }
  const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  const bool negative = std::ranges::any_of(splits, [](std::int64_t n) { return n < 0; });
  if (splits.size() != ranks || sum != rows || negative) {
    refuse(name, fmt::format("has {} rows, but the {} split sizes for {} ranks sum to {}", rows,
                             splits.size(), size, sum));
  }
  const std::int64_t width = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<std::size_t> counts;
  for (const std::int64_t split : splits) {
    counts.push_back(static_cast<std::size_t>(split * width) * lent_elements(tensor));
  }
  return counts;
}

}  // namespace gradwire
