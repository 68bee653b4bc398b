#include "gradwire/train/checkpoint/replicated.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/checkpoint/optimizer_state.h"

namespace gradwire {

std::vector<std::string> collective_try(c10d::ProcessGroup& group,
                                        const std::function<std::string()>& act) {
  std::string mine;
  try {
    mine = "+" + act();
  } catch (const std::exception& error) {
    mine = error.what();
  }
  auto texts = group.getSize() > 1 ? gather_texts(group, mine) : std::vector{mine};
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].starts_with("+")) continue;
    refuse("rank {}: {}", rank, texts[rank]);
  }
  for (auto& text : texts) text.erase(0, 1);
  return texts;
}

std::string broadcast_text(c10d::ProcessGroup& group, const std::string& text) {
  if (group.getSize() == 1) return text;
  const auto mine = static_cast<std::int64_t>(text.size());
  auto length = torch::full({1}, mine, torch::kInt64);
  broadcast_tensors(group, {{"length", length}});
  auto bytes = torch::zeros({length.item<std::int64_t>()}, torch::kByte);
  if (group.getRank() == 0) std::ranges::copy(text, bytes.data_ptr<std::uint8_t>());
  broadcast_tensors(group, {{"text", bytes}});
  const auto* begin = bytes.data_ptr<std::uint8_t>();
  return {begin, begin + bytes.numel()};
}

ReplicatedModel::ReplicatedModel(const torch::nn::Module& module, DataParallelCore& core,
                                 std::vector<torch::optim::Optimizer*> optimizers)
    : module_(module), core_(core), optimizers_(std::move(optimizers)) {
  if (!optimizers_.empty()) return;
  for (const auto& optimizer : core_.replicated().optimizers())
    optimizers_.push_back(optimizer.get());
}

void ReplicatedModel::add(std::vector<TensorPiece>& pieces, const std::string& name,
                          const torch::Tensor& tensor, bool common) {
  const auto plain = tensor.detach();
  auto flat = plain.contiguous();
  if (!flat.is_same(plain)) copies_.emplace_back(plain, flat);
  pieces.push_back(
      {.name = name, .shape = plain.sizes().vec(), .data = flat.view({-1}), .common = common});
}

std::vector<TensorPiece> ReplicatedModel::pieces(bool make) {
  core_.finish();
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
        }
      }
    }
  }
  return pieces;
}

void ReplicatedModel::loaded() {
  const torch::NoGradGuard no_grad;
  for (auto& [tensor, copy] : copies_) tensor.copy_(copy);
  copies_.clear();
}

}  // namespace gradwire
