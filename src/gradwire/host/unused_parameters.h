#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gradwire/host/autograd_graph.h"
#include "gradwire/host/gradient_hooks.h"

namespace gradwire {

/// Finds the parameters that no backward from the outputs of some forwards reaches. Not
/// thread-safe.
class UnusedParameters {
 public:
  /// A backward may start from these outputs.
  void add_outputs(const std::vector<at::Tensor>& outputs) {
    for (const auto& root : graph_roots(outputs)) roots_.emplace_back(root);
  }
  void clear() { roots_.clear(); }

  /// Returns their numbers, out of `parameters` that `hooks` knows.
  std::vector<std::size_t> find(const GradientHooks& hooks, std::size_t parameters) const;

 private:
  /// Roots of the graphs. References are weak: a freed graph, as after an evaluation with
  /// gradients, is ignored.
  std::vector<WeakGraphNode> roots_;
};

}  // namespace gradwire
