#include "gradwire/host/named_tensor.h"

#include <unordered_set>

namespace gradwire {
namespace {

using Tensors = torch::OrderedDict<std::string, torch::Tensor>;

std::vector<NamedTensor> each_once(const Tensors& tensors) {
  std::vector<NamedTensor> unique;
  std::unordered_set<const void*> seen;
  for (const auto& item : tensors) {
    if (!item.value().defined()) continue;
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    unique.push_back({item.key(), item.value()});
  }
  return unique;
}

}  // namespace

std::vector<NamedTensor> all_parameters(const torch::nn::Module& module) {
  return each_once(module.named_parameters());
}

std::vector<NamedTensor> all_buffers(const torch::nn::Module& module) {
  return each_once(module.named_buffers());
}

std::string first_unknown_trainable(const torch::nn::Module& module,
                                    const std::function<bool(const torch::Tensor&)>& known) {
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad() && !known(item.value())) return item.key();
  }
  return "";
}

std::vector<NamedTensor> trainable_parameters(const torch::nn::Module& module) {
  auto parameters = all_parameters(module);
  std::erase_if(parameters, [](const auto& p) { return !p.tensor.requires_grad(); });
  return parameters;
}

}  // namespace gradwire
