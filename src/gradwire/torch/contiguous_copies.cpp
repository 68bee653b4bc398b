#include "gradwire/torch/contiguous_copies.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/refuse.h"
#include "gradwire/torch/tensor_lists.h"
#include "gradwire/torch/tensor_work.h"

namespace gradwire {
namespace {

bool is_dense_on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.is_cpu();
}

bool needs_copy(const at::Tensor& tensor) {
  return is_dense_on_cpu(tensor) &&
         (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg());
}

/// Always returns new memory.
at::Tensor contiguous_copy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach().resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
}

/// The memory of tensors that do not overlap. Finds an overlap in O(log n).
class DisjointMemory {
 public:
  /// Adds a tensor, the `index`-th of its list. If it overlaps an earlier one, returns that one's
  /// index and adds nothing.
  std::optional<std::size_t> add(const at::Tensor& tensor, std::size_t index) {
    if (!is_dense_on_cpu(tensor) || tensor.numel() == 0) return std::nullopt;
    const auto [begin, end] = extent(tensor);
    const auto next = extents_.lower_bound(begin);
    if (next != extents_.end() && next->first < end) return next->second.index;
    if (next != extents_.begin() && std::prev(next)->second.end > begin) {
      return std::prev(next)->second.index;
    }
    extents_.emplace_hint(next, begin, Extent{end, index});
    return std::nullopt;
  }

 private:
  struct Extent {
    std::uintptr_t end;
    std::size_t index;
  };

  /// Returns the address range from a tensor's first to its last element.
  static std::pair<std::uintptr_t, std::uintptr_t> extent(const at::Tensor& tensor) {
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    return {begin, begin + (static_cast<std::uintptr_t>(last) + 1) * tensor.element_size()};
  }

  std::map<std::uintptr_t, Extent> extents_;  ///< By begin.
};

}  // namespace

at::Tensor ContiguousCopies::read(const at::Tensor& tensor) {
  if (!needs_copy(tensor)) return tensor;
  replaced_ = true;
  return contiguous_copy(tensor);
}

ContiguousCopies::TensorList ContiguousCopies::read(const TensorList& tensors) {
  TensorList all;
  for (const at::Tensor& tensor : tensors) all.push_back(read(tensor));
  return all;
}

at::Tensor ContiguousCopies::replace(const at::Tensor& tensor, const ArgumentName& name) {
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse(name, "several elements of the tensor share memory, as after expand(); clone() it");
  }
  replaced_ = true;
  originals_.push_back(tensor);
  copies_.push_back(contiguous_copy(tensor));
  return copies_.back();
}

at::Tensor ContiguousCopies::written(const at::Tensor& tensor, const ArgumentName& name) {
  return needs_copy(tensor) ? replace(tensor, name) : tensor;
}

ContiguousCopies::TensorList ContiguousCopies::written(const TensorList& tensors,
                                                       const ArgumentName& name) {
  TensorList all;
  for (const at::Tensor& tensor : tensors) all.push_back(written(tensor, name));
  return all;
}

ContiguousCopies::TensorList ContiguousCopies::written_separately(const TensorList& tensors,
                                                                  const ArgumentName& name) {
  TensorList all;
  DisjointMemory in_place;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor own = written(tensor, name);
    all.push_back(in_place.add(own, all.size()) ? replace(tensor, name) : own);
  }
  return all;
}

void ContiguousCopies::also_copy_to(const at::Tensor& one, const at::Tensor& other) {
  replaced_ = true;
  originals_.push_back(other);
  copies_.push_back(one);
}

c10::intrusive_ptr<c10d::Work> ContiguousCopies::copy_back(c10::intrusive_ptr<c10d::Work> work,
                                                           const TensorList& outputs) const {
  auto* const ours = dynamic_cast<TensorWork*>(work.get());
  GRADWIRE_CHECK(ours != nullptr);
  ours->finish_with(
      [originals = originals_, copies = copies_] {
        const at::AutoDispatchBelowADInplaceOrView no_autograd;
        for (std::size_t i = 0; i < originals.size(); ++i) originals[i].copy_(copies[i]);
      },
      outputs);
  return work;
}

void check_disjoint(const std::vector<at::Tensor>& tensors, const ArgumentName& name) {
  DisjointMemory memory;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const auto earlier = memory.add(tensors[i], i)) {
      refuse(name,
             fmt::format("tensors {} and {} overlap, but the operation writes both", *earlier, i));
    }
  }
}

}  // namespace gradwire
