#include "gradwire/train/checkpoint/replicated.h"

#include <algorithm>

#include "gradwire/base/refuse.h"
#include "gradwire/host/training_host.h"

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

namespace {

std::vector<torch::optim::Optimizer*> optimizers_of(DataParallelCore& core,
                                                    std::vector<torch::optim::Optimizer*> own) {
  return own.empty() ? core.optimizers() : own;
}

}  // namespace

ReplicatedModel::ReplicatedModel(const torch::nn::Module& module, DataParallelCore& core,
                                 std::vector<torch::optim::Optimizer*> optimizers)
    : core_(core), state_(module, optimizers_of(core, std::move(optimizers))) {}

void ReplicatedModel::loaded() {
  state_.loaded();
  core_.host().invalidate();
}

std::vector<TensorPiece> ReplicatedModel::pieces(bool make_states) {
  core_.finish();
  return state_.pieces(make_states);
}

}  // namespace gradwire
