#include "gradwire/train/pipeline/split_backward.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/parallel/parallel_linear.h"

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

/// Appends `root` and the nodes below that were not seen, each after those that it leads to.
void add_nodes_below(Node* root, std::unordered_set<Node*>& seen, std::vector<Node*>& sorted) {
  if (!seen.insert(root).second) return;
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
}

/// Where to pass gradients to a node, and which: it receives none of outputs that nothing uses,
/// such as the statistics of group norm.
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

/// Returns true if a node that runs twice, each time for some of its results, gives what it gives
/// at once. Of custom functions nobody knows.
bool may_run_in_parts(Node& node) {
  const bool has_hooks = !node.pre_hooks().empty() || !node.post_hooks().empty() ||
                         !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
  return !has_hooks && (node.is_traceable() || is_column_linear(node));
}

}  // namespace

SplitBackward::SplitBackward(std::vector<torch::Tensor> outputs, std::vector<torch::Tensor> inputs)
    : inputs_(std::move(inputs)) {
  for (const torch::Tensor& output : outputs) {
    has_graph_.push_back(output.requires_grad());
    if (has_graph_.back()) roots_.push_back(torch::autograd::impl::gradient_edge(output));
  }
}

edge_list SplitBackward::input_edges() const {
  edge_list edges;
  for (const torch::Tensor& input : inputs_) {
    edges.push_back(torch::autograd::impl::gradient_edge(input));
  }
  return edges;
}

variable_list SplitBackward::at_roots(const std::vector<torch::Tensor>& gradients) const {
  variable_list of_roots;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (has_graph_[i]) of_roots.push_back(gradients[i]);
  }
  return of_roots;
}

/// The nodes of the graph, each after those that it leads to.
std::vector<Node*> SplitBackward::sorted_nodes() const {
  std::unordered_set<Node*> seen;
  std::vector<Node*> sorted;
  for (const Edge& root : roots_) add_nodes_below(root.function.get(), seen, sorted);
  return sorted;
}

bool SplitBackward::has_checkpoint() const {
  return std::ranges::any_of(sorted_nodes(), [](const Node* node) { return is_checkpoint(*node); });
}

bool SplitBackward::is_whole() {
  if (!splits_) splits_ = roots_.empty() || inputs_.empty() || find_branches();
  return !*splits_;
}

/// Finds where paths to parameters leave those to the inputs. Returns false if the weights cannot
/// be left to the second part.
bool SplitBackward::find_branches() {
  std::unordered_set<Node*> leads_to_input;
  for (const Edge& edge : input_edges()) leads_to_input.insert(edge.function.get());
  const std::unordered_set<Node*> leaves = leads_to_input;
  Accumulators parameters;  // Parameters of nodes that do not lead to an input.
  std::set<Node*> taken;
  for (Node* const node : sorted_nodes()) {
    if (is_checkpoint(*node)) return false;
    if (leaves.contains(node)) continue;
    std::set<Node*> found;
    bool on_path = false;
    for (const Edge& edge : node->next_edges()) {
      on_path |= leads_to_input.contains(edge.function.get());
      const auto below = parameters.find(edge.function.get());
      if (below != parameters.end()) found.insert(below->second.begin(), below->second.end());
    }
    if (dynamic_cast<AccumulateGrad*>(node)) found.insert(node);
    if (!on_path) {
      parameters[node] = std::move(found);
      continue;
    }
    leads_to_input.insert(node);
    if (found.empty()) continue;
    if (!may_run_in_parts(*node) || !add_branch(node, found, taken)) return false;
  }
  std::set<Node*> of_outputs;
  for (const Edge& root : roots_) {
    const auto below = parameters.find(root.function.get());
    if (below != parameters.end()) of_outputs.insert(below->second.begin(), below->second.end());
  }
  return of_outputs.empty() || add_branch(nullptr, of_outputs, taken);
}

/// Returns false if another branch leads to one of the parameters.
bool SplitBackward::add_branch(Node* node, const std::set<Node*>& parameters,
                               std::set<Node*>& taken) {
  Branch& branch = branches_.emplace_back();
  branch.node = node;
  for (Node* const parameter : parameters) {
    if (!taken.insert(parameter).second) return false;
    branch.parameters.emplace_back(parameter->getptr(), 0);
  }
  return true;
}

std::vector<torch::Tensor> SplitBackward::inputs(const std::vector<torch::Tensor>& gradients) {
  if (roots_.empty() || inputs_.empty()) {
    gradients_ = gradients;
    return std::vector<torch::Tensor>(inputs_.size());
  }
  if (is_whole()) return all(gradients);
  for (const Branch& branch : branches_) {
    if (branch.node) {
      branch.node->add_pre_hook(std::make_unique<Capture>(branch.received));
    } else {
      *branch.received = at_roots(gradients);
    }
  }
  return autograd_engine().execute(roots_, at_roots(gradients), /*keep_graph=*/true,
                                   /*create_graph=*/false, /*accumulate_grad=*/false,
                                   input_edges());
}

void SplitBackward::weights() {
  if (done_ || roots_.empty()) return;
  if (inputs_.empty()) {
    all(gradients_);
    return;
  }
  for (const Branch& branch : branches_) {
    if (branch.received->empty()) continue;
    // Copies: the hook stores what the node receives now.
    const auto [roots, received] = branch.node ? roots_of(*branch.node, *branch.received)
                                               : std::pair(roots_, *branch.received);
    if (roots.empty()) continue;
    autograd_engine().execute(roots, received, /*keep_graph=*/false,
                              /*create_graph=*/false, /*accumulate_grad=*/true, branch.parameters);
  }
  branches_.clear();
  roots_.clear();
  done_ = true;
}

std::vector<torch::Tensor> SplitBackward::all(const std::vector<torch::Tensor>& gradients) {
  std::vector<torch::Tensor> results(inputs_.size());
  if (roots_.empty()) return results;
  autograd_engine().execute(roots_, at_roots(gradients), /*keep_graph=*/false,
                            /*create_graph=*/false, /*accumulate_grad=*/true);
  roots_.clear();
  branches_.clear();
  gradients_.clear();
  done_ = true;
  for (std::size_t i = 0; i < inputs_.size(); ++i) results[i] = inputs_[i].grad();
  return results;
}

}  // namespace gradwire
