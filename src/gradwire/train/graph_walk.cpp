#include "gradwire/train/graph_walk.h"

namespace gradwire {

void walk_graph(const std::vector<torch::Tensor>& outputs,
                std::unordered_set<const torch::autograd::Node*>& reached) {
  std::vector<const torch::autograd::Node*> todo;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && reached.insert(node).second) todo.push_back(node);
  };
  for (const auto& output : outputs) {
    if (output.defined() && output.requires_grad()) {
      visit(torch::autograd::impl::gradient_edge(output).function.get());
    }
  }
  while (!todo.empty()) {
    const auto* node = todo.back();
    todo.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
}

}  // namespace gradwire
