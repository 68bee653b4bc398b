#include "gradwire/train/federated/dense_classifier.h"

#include <utility>

#include "gradwire/base/refuse.h"

namespace gradwire {

DenseClassifier::DenseClassifier(std::vector<torch::Tensor> parameters) {
  if (parameters.empty() || parameters.size() % 2 != 0)
    refuse("a dense classifier has a weight and a bias a layer, not {} tensors", parameters.size());
  for (std::size_t i = 0; i < parameters.size(); i += 2) {
    Layer layer{.weight = parameters[i], .bias = parameters[i + 1]};
    if (layer.weight.dim() != 2 || layer.bias.dim() != 1 ||
        layer.weight.size(0) != layer.bias.size(0) ||
        (i > 0 && layer.weight.size(1) != parameters[i - 2].size(0))) {
      refuse("a dense classifier's layers are a matrix and a vector each, and fit each other");
    }
    layer.weight_gradient = torch::empty_like(layer.weight, torch::requires_grad(false));
    layer.bias_gradient = torch::empty_like(layer.bias, torch::requires_grad(false));
    layers_.push_back(std::move(layer));
  }
}

torch::Tensor DenseClassifier::forward(std::vector<torch::Tensor>& inputs) const {
  torch::Tensor values;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    values = at::addmm(layers_[i].bias, inputs.back(), layers_[i].weight.t());
    if (i + 1 < layers_.size()) inputs.push_back(values.relu_());
  }
  return at::_log_softmax(values, 1, /*half_to_float=*/false);
}

torch::Tensor DenseClassifier::differentiate(const torch::Tensor& inputs,
                                             const torch::Tensor& targets) {
  const torch::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<torch::Tensor> layer_inputs{inputs.flatten(1)};
  const torch::Tensor log_probabilities = forward(layer_inputs);
  const torch::Tensor columns = targets.unsqueeze(1);
  const torch::Tensor loss = log_probabilities.gather(1, columns).mean().neg_();
  // The loss's gradient by the last layer's outputs: (softmax - one-hot) / N.
  torch::Tensor gradient = log_probabilities.exp_();
  gradient.scatter_add_(1, columns, at::full_like(columns, -1, gradient.options()));
  gradient.div_(static_cast<double>(targets.numel()));
  for (std::size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = layers_[i];
    at::mm_out(layer.weight_gradient, gradient.t(), layer_inputs[i]);
    at::sum_out(layer.bias_gradient, gradient, 0);
    if (i > 0)
      gradient = at::threshold_backward(at::mm(gradient, layer.weight), layer_inputs[i], 0);
    layer.weight.mutable_grad() = layer.weight_gradient;
    layer.bias.mutable_grad() = layer.bias_gradient;
  }
  return loss;
}

}  // namespace gradwire
