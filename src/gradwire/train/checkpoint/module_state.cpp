#include "gradwire/train/checkpoint/module_state.h"

#include <unordered_map>

#include <fmt/format.h>

#include "gradwire/host/named_tensor.h"
#include "gradwire/train/checkpoint/optimizer_state.h"

namespace gradwire {

void ModuleState::add(std::vector<TensorPiece>& pieces, const std::string& name,
                      const torch::Tensor& tensor, bool common) {
  const auto plain = tensor.detach();
  auto flat = plain.contiguous();
  if (!flat.is_same(plain)) copies_.emplace_back(plain, flat);
  pieces.push_back(
      {.name = name, .shape = plain.sizes().vec(), .data = flat.view({-1}), .common = common});
}

std::vector<TensorPiece> ModuleState::pieces(bool make) {
  copies_.clear();
  std::vector<TensorPiece> pieces;
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, tensor] : all_parameters(module_)) {
    add(pieces, name, tensor);
    names[tensor.unsafeGetTensorImpl()] = name;
  }
  for (const auto& [name, tensor] : all_buffers(module_)) add(pieces, name, tensor, false);
  for (auto* optimizer : optimizers_) {
    if (make) make_states(*optimizer);
    for (const auto& group : optimizer->param_groups()) {
      for (const auto& parameter : group.params()) {
        const auto& name = names.at(parameter.unsafeGetTensorImpl());
        for (const auto& [state, tensor] : states_of(*optimizer, parameter)) {
          add(pieces, fmt::format("optimizer.{}.{}", state, name), tensor);
          pieces.back().is_state = true;
        }
      }
    }
  }
  return pieces;
}

void ModuleState::loaded() {
  const torch::NoGradGuard no_grad;
  for (auto& [tensor, copy] : copies_) tensor.copy_(copy);
  copies_.clear();
}

}  // namespace gradwire
