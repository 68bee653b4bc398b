#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gradwire/servers/server.h"

namespace gradwire {

/// torch.optim's SGD, Adam and Adagrad, with their defaults, but for the options that are not here.
struct BuiltinOptimizer {
  std::string name;  ///< "sgd", "adam" or "adagrad".
  double lr = 0;
  double momentum = 0, dampening = 0;  ///< SGD.
  bool nesterov = false;               ///< SGD.
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0;                         ///< Adam.
  double eps = 0;                                      ///< Adam, Adagrad.
  double lr_decay = 0, initial_accumulator_value = 0;  ///< Adagrad.
};

/// A server's parts of a model, which step without Python, with the bits of torch.optim's
/// single-tensor implementations.
class BuiltinShards final : public servers::ServedShards {
 public:
  /// `values`: 1-D, of each unit.
  BuiltinShards(std::vector<at::Tensor> values, BuiltinOptimizer optimizer);

  std::size_t units() const override { return parts_.size(); }
  LentSpan values(std::size_t unit) override;
  void step(std::size_t unit, const LentSpan& gradient, double rate) override;

 private:
  struct Part {
    at::Tensor values;
    at::Tensor first, second;  ///< The optimizer's states; undefined before they are needed.
    std::int64_t steps = 0;
  };

  void step_sgd(Part& part, at::Tensor gradient, double lr) const;
  void step_adam(Part& part, const at::Tensor& gradient, double lr) const;
  void step_adagrad(Part& part, const at::Tensor& gradient, double lr) const;

  BuiltinOptimizer optimizer_;
  std::vector<Part> parts_;
};

}  // namespace gradwire
