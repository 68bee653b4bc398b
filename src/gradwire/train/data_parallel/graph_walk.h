#pragma once

#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

namespace gradwire {

using GraphNode = c10::intrusive_ptr<torch::autograd::Node>;

/// Returns the nodes at which backward from `outputs` starts.
std::vector<GraphNode> graph_roots(const std::vector<torch::Tensor>& outputs);

/// Returns every node of the autograd graph that backward from `roots` can reach. A parameter gets
/// a gradient only if its accumulator is among them. Iterative, because graphs are deep.
std::unordered_set<const torch::autograd::Node*> walk_graph(const std::vector<GraphNode>& roots);

}  // namespace gradwire
