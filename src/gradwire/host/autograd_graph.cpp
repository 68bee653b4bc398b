#include "gradwire/host/autograd_graph.h"

namespace gradwire {

std::vector<GraphNode> graph_roots(const std::vector<torch::Tensor>& outputs) {
  std::vector<GraphNode> roots;
  for (const auto& output : outputs) {
    if (output.defined() && output.requires_grad()) {
      roots.push_back(torch::autograd::impl::gradient_edge(output).function);
    }
  }
  return roots;
}

std::unordered_set<const torch::autograd::Node*> walk_graph(const std::vector<GraphNode>& roots) {
  std::unordered_set<const torch::autograd::Node*> reached;
  std::vector<const torch::autograd::Node*> todo;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && reached.insert(node).second) todo.push_back(node);
  };
  for (const auto& root : roots) visit(root.get());
  while (!todo.empty()) {
    const auto* node = todo.back();
    todo.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return reached;
}

}  // namespace gradwire
