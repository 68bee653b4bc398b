#include "gradwire/torch/packed_tensors.h"

#include <map>

#include "gradwire/base/random.h"

namespace gradwire {
namespace {

/// A pack that takes more tensors.
struct OpenPack {
  std::size_t at = 0;  ///< Its place.
  std::size_t bytes = 0;
};

}  // namespace

std::vector<TensorPack> packs_of(const TensorList& tensors) {
  std::vector<TensorPack> packs;
  std::map<at::ScalarType, OpenPack> open;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = tensors[i].nbytes();
    if (bytes > kMaxPackedTensor) {
      packs.push_back({.members = {i}});
      continue;
    }
    const auto [entry, is_new] = open.try_emplace(tensors[i].scalar_type());
    OpenPack& pack = entry->second;
    if (is_new || pack.bytes + bytes > kMaxPack) {
      pack = {.at = packs.size()};
      packs.emplace_back();
    }
    pack.bytes += bytes;
    packs[pack.at].members.push_back(i);
  }
  for (TensorPack& pack : packs) {
    if (pack.members.size() == 1) continue;
    for (const std::size_t member : pack.members) {
      pack.layout = mixed_seed({pack.layout, static_cast<std::uint64_t>(tensors[member].numel())});
    }
  }
  return packs;
}

TensorList members_of(const TensorPack& pack, const TensorList& tensors) {
  TensorList members;
  members.reserve(pack.members.size());
  for (const std::size_t member : pack.members) members.push_back(tensors[member]);
  return members;
}

}  // namespace gradwire
