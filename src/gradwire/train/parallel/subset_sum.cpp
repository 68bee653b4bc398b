#include "gradwire/train/parallel/subset_sum.h"

#include <vector>

#include "gradwire/base/box.h"
#include "gradwire/train/parallel/box_exchange.h"
#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire {

torch::Tensor subset_sum(const torch::Tensor& x, const std::function<int(int rank)>& subset_of,
                         const ProcessGroup& group) {
  const int ranks = group->getSize();
  std::vector<int> size(static_cast<std::size_t>(ranks));
  std::vector<int> index;  // Of each rank in its subset.
  for (int r = 0; r < ranks; ++r) {
    index.push_back(size[static_cast<std::size_t>(subset_of(r))]++);
  }
  if (size[0] == ranks) return collective::sum(x, group);
  const auto elements = x.numel();
  Division parts{{elements * ranks}, {}};  // Subset s has the elements from s * elements on.
  Division wholes = parts;
  for (int r = 0; r < ranks; ++r) {
    const int subset = subset_of(r);
    const auto members = size[static_cast<std::size_t>(subset)];
    const auto member = index[static_cast<std::size_t>(r)];
    const auto first = subset * elements;
    wholes.boxes.push_back({{first}, {first + elements}});
    parts.boxes.push_back({{first + part_begin(elements, members, member)},
                           {first + part_begin(elements, members, member + 1)}});
  }
  const BoxExchange exchange(parts, wholes, group);
  return exchange.forward(exchange.backward(x.reshape({-1}))).view(x.sizes());
}

}  // namespace gradwire
