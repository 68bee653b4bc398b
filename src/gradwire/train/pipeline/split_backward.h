#pragma once

#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

namespace gradwire {

/// The backward of one forward in two parts: gradients of the inputs, which another stage waits
/// for, and gradients of the weights, which can wait (Qi et al., arXiv:2401.10241). Together they
/// compute what one backward computes, with the same bits: each gradient of weights is computed
/// from the gradient that its node of the autograd graph received in the first part.
///
/// Both parts are one, in inputs(), if the graph does not show that two give the same: a parameter
/// is used in several places, whose gradients would be added in another order; a node that the
/// second part would run again has hooks or is a custom function; or there is an activation
/// checkpoint, which adds to gradients while it computes that of its input. Not thread-safe.
class SplitBackward {
 public:
  /// `outputs`: results of the forward, `inputs`: the leaves that they were computed from; none if
  /// no gradients of them are needed, as in the first stage.
  SplitBackward(std::vector<torch::Tensor> outputs, std::vector<torch::Tensor> inputs);

  /// Returns true if inputs() adds to the gradients of the parameters.
  bool is_whole();
  /// Returns true if an activation checkpoint will compute a part of the forward again.
  bool has_checkpoint() const;
  /// Returns true if all gradients are computed.
  bool is_done() const { return done_; }

  /// Returns the gradient of each input, undefined if there is none. `gradients`: of each output.
  std::vector<torch::Tensor> inputs(const std::vector<torch::Tensor>& gradients);
  /// Adds to the gradients of the parameters. Called once, after inputs(); frees the graph.
  void weights();
  /// Both at once.
  std::vector<torch::Tensor> all(const std::vector<torch::Tensor>& gradients);

 private:
  using Node = torch::autograd::Node;
  /// By node: the accumulators of parameters that it leads to.
  using Accumulators = std::unordered_map<Node*, std::set<Node*>>;

  /// A node that passes gradients on to parameters and to the input; or, without a node, all
  /// outputs that lead to parameters alone.
  struct Branch {
    std::shared_ptr<torch::autograd::variable_list> received =
        std::make_shared<torch::autograd::variable_list>();  ///< In inputs().
    Node* node = nullptr;
    torch::autograd::edge_list parameters;  ///< The accumulators of their gradients.
  };

  std::vector<Node*> sorted_nodes() const;
  bool find_branches();
  bool add_branch(Node* node, const std::set<Node*>& parameters, std::set<Node*>& taken);
  torch::autograd::edge_list input_edges() const;
  /// The gradients of the outputs that have a graph.
  torch::autograd::variable_list at_roots(const std::vector<torch::Tensor>& gradients) const;

  std::vector<bool> has_graph_;  ///< By output.
  torch::autograd::edge_list roots_;
  std::vector<torch::Tensor> inputs_;
  /// The gradients of the outputs, until weights() if there are no inputs.
  std::vector<torch::Tensor> gradients_;
  std::vector<Branch> branches_;
  std::optional<bool> splits_;  ///< Known after the graph was searched for branches.
  bool done_ = false;           ///< inputs() computed everything.
};

}  // namespace gradwire
