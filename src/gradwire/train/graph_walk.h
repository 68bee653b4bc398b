#pragma once

#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

namespace gradwire {

/// Adds every node of the autograd graph that backward from `outputs` can reach to `reached`. A
/// parameter gets a gradient only if its accumulator is among them. Iterative: graphs are deep.
void walk_graph(const std::vector<torch::Tensor>& outputs,
                std::unordered_set<const torch::autograd::Node*>& reached);

}  // namespace gradwire
