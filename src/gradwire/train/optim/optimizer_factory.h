#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"

namespace gradwire {

/// Makes the optimizer of some of the parameters: of a bucket of DataParallel, of a unit of Zero,
/// of a stage of a Pipeline; called once for each. Made from a function of the parameters, or of
/// the parameters and their names, such as
///
///     [](const std::vector<gradwire::NamedTensor>& parameters) {
///       std::vector<torch::Tensor> decayed, plain;
///       for (const auto& [name, tensor] : parameters) {
///         (tensor.dim() > 1 ? decayed : plain).push_back(tensor);
///       }
///       std::vector<torch::optim::OptimizerParamGroup> groups;
///       groups.emplace_back(decayed, std::make_unique<torch::optim::AdamWOptions>(1e-3));
///       auto undecayed = std::make_unique<torch::optim::AdamWOptions>(1e-3);
///       undecayed->weight_decay(0);
///       groups.emplace_back(plain, std::move(undecayed));
///       return std::make_unique<torch::optim::AdamW>(std::move(groups));
///     }
///
/// The parameters are whole and have the module's names and shapes; with a tensor axis, this rank's
/// part of a divided one. Parameters that a Pipeline ties (Layers::tie) have the name of the first
/// of them. Which group a parameter is in may depend on these alone, and a group may stay empty.
/// The optimizer must treat each parameter independently (SGD, Adam, LAMB, ...: no norm over all
/// gradients). A parameter that is in no group is not stepped.
class OptimizerFactory {
 public:
  using Made = std::unique_ptr<torch::optim::Optimizer>;
  using Parameters = std::vector<NamedTensor>;

  OptimizerFactory() = default;
  OptimizerFactory(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)

  template <class Make>
  requires(!std::is_same_v<Make, OptimizerFactory> &&
           std::is_invocable_r_v<Made, Make&, std::vector<torch::Tensor>>)
      OptimizerFactory(Make make)  // NOLINT(google-explicit-constructor)
      : make_([make = std::move(make)](const Parameters& parameters) -> Made {
          std::vector<torch::Tensor> tensors;
          for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
          return make(std::move(tensors));
        }) {}

  template <class Make>
  requires(!std::is_same_v<Make, OptimizerFactory> &&
           !std::is_invocable_r_v<Made, Make&, std::vector<torch::Tensor>> &&
           std::is_invocable_r_v<Made, Make&, const Parameters&>)
      OptimizerFactory(Make make)  // NOLINT(google-explicit-constructor)
      : make_(std::move(make)) {}

  explicit operator bool() const { return make_ != nullptr; }
  Made operator()(const Parameters& parameters) const { return make_(parameters); }

 private:
  std::function<Made(const Parameters&)> make_;
};

/// Called before each unit's optimizer steps, to set its learning rate.
using BeforeStep = std::function<void(torch::optim::Optimizer&)>;

}  // namespace gradwire
