#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

namespace gradwire {

/// A std::shared_ptr or a c10::intrusive_ptr, by the release of PyTorch.
using GraphNode = decltype(torch::autograd::Edge::function);

template <class Node>
std::weak_ptr<Node> weak(const std::shared_ptr<Node>& node) {
  return node;
}
template <class Node>
c10::weak_intrusive_ptr<Node> weak(const c10::intrusive_ptr<Node>& node) {
  return c10::weak_intrusive_ptr<Node>(node);
}
using WeakGraphNode = decltype(weak(GraphNode()));

/// Returns the nodes at which backward from `outputs` starts.
std::vector<GraphNode> graph_roots(const std::vector<torch::Tensor>& outputs);

/// Returns every node of the autograd graph that backward from `roots` can reach. A parameter gets
/// a gradient only if its accumulator is among them. Iterative, because graphs are deep.
std::unordered_set<const torch::autograd::Node*> walk_graph(const std::vector<GraphNode>& roots);

/// Appends the tensors in the result of a module's forward: a tensor, or any nesting of containers,
/// tuples, pairs and optionals of them. Other values (numbers, strings) contain none. To support a
/// user-defined type, declare `std::vector<torch::Tensor> tensors_in(const TheirType&)` in its
/// namespace.
template <class T>
void append_tensors(const T& value, std::vector<torch::Tensor>& found) {
  if constexpr (std::convertible_to<const T&, torch::Tensor>) {
    found.push_back(value);
  } else if constexpr (requires { tensors_in(value); }) {
    for (const auto& tensor : tensors_in(value)) found.push_back(tensor);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) append_tensors(*value, found);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... parts) { (append_tensors(parts, found), ...); }, value);
  } else if constexpr (!std::is_same_v<T, std::string> &&
                       requires { value.begin() != value.end(); }) {
    for (const auto& part : value) append_tensors(part, found);
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_same_v<T, std::string>,
                  "write std::vector<torch::Tensor> tensors_in(const T&) beside this type");
  }
}

template <class T>
std::vector<torch::Tensor> output_tensors(const T& value) {
  std::vector<torch::Tensor> found;
  append_tensors(value, found);
  return found;
}

}  // namespace gradwire
