#pragma once

#include <memory>
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
/// Both parts are one, in inputs(), if a parameter is used more than once: its gradients would be
/// added in another order. Not thread-safe.
class SplitBackward {
 public:
  /// `output`: a result of the forward, `input`: the leaf that it was computed from; undefined if
  /// no gradient of it is needed, as in the first stage.
  SplitBackward(const torch::Tensor& output, torch::Tensor input);

  /// Returns the gradient of the input, undefined if there is none. `gradient`: of the output.
  torch::Tensor inputs(const torch::Tensor& gradient);
  /// Adds to the gradients of the parameters. Called once, after inputs(); frees the graph.
  void weights();
  /// Both at once.
  torch::Tensor all(const torch::Tensor& gradient);

 private:
  /// A node that passes gradients on to parameters and to the input.
  struct Branch {
    std::shared_ptr<torch::autograd::variable_list> received;  ///< In inputs().
    torch::autograd::Node* node = nullptr;
    torch::autograd::edge_list parameters;  ///< The accumulators of their gradients.
  };

  bool find_branches();

  torch::autograd::Edge root_;
  torch::Tensor input_;
  torch::Tensor gradient_;  ///< Of the output, until weights() if nothing leads to the input.
  std::vector<Branch> branches_;
  bool done_ = false;  ///< inputs() computed everything.
};

}  // namespace gradwire
