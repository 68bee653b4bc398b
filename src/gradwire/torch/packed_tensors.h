#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/torch/tensor_lists.h"

namespace gradwire {

/// Tensors of one list that one operation carries together, because a small operation costs more
/// than copies of its tensors.
struct TensorPack {
  std::vector<std::size_t> members;  ///< Places in the list, ascending.
  /// OperationOptions::layout: a hash of the members' sizes; 0 for one member.
  std::uint64_t layout = 0;
};

/// Divides a list into packs of one type: tensors of up to kMaxPackedTensor bytes share packs of up
/// to kMaxPack bytes, others are alone. Ranks with the same sizes and types get the same packs.
std::vector<TensorPack> packs_of(const TensorList& tensors);

inline constexpr std::size_t kMaxPackedTensor = std::size_t{64} << 10;
inline constexpr std::size_t kMaxPack = std::size_t{4} << 20;

/// Returns the members.
TensorList members_of(const TensorPack& pack, const TensorList& tensors);

}  // namespace gradwire
