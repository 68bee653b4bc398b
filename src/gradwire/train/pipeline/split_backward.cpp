#include "gradwire/train/pipeline/split_backward.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace gradwire {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

torch::autograd::Engine& autograd_engine() {
  return torch::autograd::Engine::get_default_engine();
}

/// Stores the gradients that a node receives.
class Capture final : public torch::autograd::FunctionPreHook {
 public:
  explicit Capture(std::shared_ptr<variable_list> place) : place_(std::move(place)) {}
  variable_list operator()(const variable_list& gradients) override {
    *place_ = gradients;
    return gradients;
  }

 private:
  std::shared_ptr<variable_list> place_;
};

/// The nodes below `root`, each after those that it leads to.
std::vector<Node*> nodes_below(Node* root) {
  std::vector<Node*> sorted;
  std::unordered_set<Node*> seen{root};
  std::vector<std::pair<Node*, std::size_t>> path{{root, 0}};
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next == node->next_edges().size()) {
      sorted.push_back(node);
      path.pop_back();
      continue;
    }
    Node* const below = node->next_edge(next++).function.get();
    if (below && seen.insert(below).second) path.emplace_back(below, 0);
  }
  return sorted;
}

/// Where to pass gradients to a node, and which: it receives none of outputs that nothing uses, such
/// as the statistics of group norm.
std::pair<edge_list, variable_list> roots_of(Node& node, const variable_list& received) {
  edge_list edges;
  variable_list gradients;
  for (std::uint32_t i = 0; i < node.num_inputs(); ++i) {
    if (!received[i].defined()) continue;
    edges.emplace_back(node.getptr(), i);
    gradients.push_back(received[i]);
  }
  return {std::move(edges), std::move(gradients)};
}

}  // namespace

SplitBackward::SplitBackward(const torch::Tensor& output, torch::Tensor input)
    : root_(output.requires_grad() ? torch::autograd::impl::gradient_edge(output) : Edge()),
      input_(std::move(input)) {}

/// Finds the nodes at which paths to parameters leave those to the input. Returns false if two of
/// them lead to one parameter.
bool SplitBackward::find_branches() {
  Node* const leaf = torch::autograd::impl::gradient_edge(input_).function.get();
  std::unordered_set<Node*> leads_to_input{leaf};
  std::unordered_map<Node*, edge_list> parameters;  // By node that does not lead to the input.
  std::unordered_set<Node*> taken;
  for (Node* const node : nodes_below(root_.function.get())) {
    if (node == leaf) continue;
    edge_list found;
    bool on_path = false;
    for (const Edge& edge : node->next_edges()) {
      on_path |= leads_to_input.contains(edge.function.get());
      const auto below = parameters.find(edge.function.get());
      if (below == parameters.end()) continue;
      found.insert(found.end(), below->second.begin(), below->second.end());
    }
    if (dynamic_cast<AccumulateGrad*>(node)) found.emplace_back(node->getptr(), 0);
    if (!on_path) {
      parameters[node] = std::move(found);
      continue;
    }
    leads_to_input.insert(node);
    if (found.empty()) continue;
    for (const Edge& parameter : found) {
      if (!taken.insert(parameter.function.get()).second) return false;
    }
    branches_.push_back({std::make_shared<variable_list>(), node, std::move(found)});
  }
  return true;
}

torch::Tensor SplitBackward::inputs(const torch::Tensor& gradient) {
  if (!root_.function || !input_.defined()) {
    gradient_ = gradient;
    return {};
  }
  if (!find_branches()) return all(gradient);
  for (const Branch& branch : branches_) {
    branch.node->add_pre_hook(std::make_unique<Capture>(branch.received));
  }
  return autograd_engine()
      .execute({root_}, {gradient}, /*keep_graph=*/true, /*create_graph=*/false,
               /*accumulate_grad=*/false, {torch::autograd::impl::gradient_edge(input_)})
      .front();
}

void SplitBackward::weights() {
  if (done_ || !root_.function) return;
  if (!input_.defined()) {
    all(gradient_);
    return;
  }
  for (const Branch& branch : branches_) {
    if (branch.received->empty()) continue;
    // Copies: the hook stores what the node receives now.
    const auto [roots, received] = roots_of(*branch.node, *branch.received);
    if (roots.empty()) continue;
    autograd_engine().execute(roots, received, /*keep_graph=*/false,
                              /*create_graph=*/false, /*accumulate_grad=*/true, branch.parameters);
  }
  branches_.clear();
  root_ = {};
  done_ = true;
}

torch::Tensor SplitBackward::all(const torch::Tensor& gradient) {
  if (!root_.function) return {};
  autograd_engine().execute({root_}, {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
                            /*accumulate_grad=*/true);
  root_ = {};
  branches_.clear();
  gradient_ = torch::Tensor();
  done_ = true;
  return input_.defined() ? input_.grad() : torch::Tensor();
}

}  // namespace gradwire
