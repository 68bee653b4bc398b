#include "gradwire/recipe/load_data.h"

#include <algorithm>

#include "gradwire/data/text.h"

namespace gradwire {

DataSet load_data(const DataConfig& config, Split split) {
  auto data = config.name == "text" ? make_data_set(load_text(split, config.context, config.path))
                                    : make_data_set(load_fashion_mnist(split, config.path));
  // Samplers use the first `size` samples.
  if (split == Split::train && config.limit > 0) data.size = std::min(data.size, config.limit);
  return data;
}

}  // namespace gradwire
