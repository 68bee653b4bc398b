#include "gradwire/host/unused_parameters.h"

#include <utility>

namespace gradwire {

std::vector<std::size_t> UnusedParameters::find(const GradientHooks& hooks,
                                                std::size_t parameters) const {
  std::vector<GraphNode> roots;
  for (const auto& root : roots_) {
    if (auto alive = root.lock()) roots.push_back(std::move(alive));
  }
  const auto reachable = walk_graph(roots);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters; ++i) {
    if (!reachable.contains(hooks.accumulator(i))) found.push_back(i);
  }
  return found;
}

}  // namespace gradwire
