#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "gradwire/base/random.h"

namespace gradwire {

/// Fisher-Yates with gradwire's generator: std::shuffle differs between standard libraries.
template <class Item>
void shuffle(std::vector<Item>& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

}  // namespace gradwire
