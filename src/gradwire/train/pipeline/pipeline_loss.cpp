#include "gradwire/train/pipeline/pipeline_loss.h"

namespace gradwire {

PipelineLoss cross_entropy_sum(std::int64_t ignore) {
  const auto sum = [ignore](const torch::Tensor& output, const torch::Tensor& target) {
    using torch::nn::functional::CrossEntropyFuncOptions;
    return torch::nn::functional::cross_entropy(
        output.reshape({-1, output.size(-1)}), target.reshape({-1}),
        CrossEntropyFuncOptions().ignore_index(ignore).reduction(torch::kSum));
  };
  const auto count = [ignore](const torch::Tensor& target) {
    return static_cast<double>((target != ignore).sum().item<std::int64_t>());
  };
  return {sum, count};
}

PipelineLoss squared_error_sum() {
  const auto sum = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nn::functional::mse_loss(
        output, target, torch::nn::functional::MSELossFuncOptions().reduction(torch::kSum));
  };
  return {sum, [](const torch::Tensor& target) { return static_cast<double>(target.numel()); }};
}

}  // namespace gradwire
