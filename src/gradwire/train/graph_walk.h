#pragma once

#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

namespace gradwire {

using GraphNode = c10::intrusive_ptr<torch::autograd::Node>;

/// The nodes where backward from `outputs` begins.
std::vector<GraphNode> graph_roots(const std::vector<torch::Tensor>& outputs);

/// Every node of the autograd graph that backward from `roots` can reach. A parameter gets a
/// gradient only if its accumulator is among them. Iterative: graphs are deep.
std::unordered_set<const torch::autograd::Node*> walk_graph(const std::vector<GraphNode>& roots);

}  // namespace gradwire
